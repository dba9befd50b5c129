"""What may be logged: ids and states always, what is said only on request, credentials never."""

from __future__ import annotations

import logging

from realtime.protocol.messages import (
    ClientMessage,
    ItemCreate,
    ItemTruncate,
    ResponseStart,
    ResponseText,
)
from realtime.server.config import ServerConfig

FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"
_OURS = ("realtime", "engine")
# At INFO they log addresses as they were requested, with what is signed into them.
_TELLTALES = ("httpx", "httpcore")


def configure_logging(config: ServerConfig) -> None:
    """Set levels: `log_level` is ours alone, for at DEBUG other packages log headers and bodies."""
    level = config.log_level.upper()
    logging.basicConfig(level="INFO" if level == "DEBUG" else level, format=FORMAT)
    for name in _OURS:
        logging.getLogger(name).setLevel(level)
    for name in _TELLTALES:
        logging.getLogger(name).setLevel(logging.WARNING)


def log_received(
    logger: logging.Logger, session_id: str, message: ClientMessage, *, with_text: bool
) -> None:
    """Log a client message at DEBUG, its text only `with_text`."""
    if not logger.isEnabledFor(logging.DEBUG):
        return
    said = f" text={_text_of(message)!r}" if with_text else ""
    logger.debug("sess=%s received=%s m=%d%s", session_id, message.type, message.m, said)


def _text_of(message: ClientMessage) -> str | None:
    match message:
        case ResponseText():
            return message.delta
        case ResponseStart() | ItemTruncate():
            return message.text
        case ItemCreate():
            return message.item.text
    return None
