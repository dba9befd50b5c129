"""The two encodings of control messages, and which of them a connection speaks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, Literal

import msgpack

from realtime.protocol.errors import ProtocolError
from realtime.protocol.limits import DEFAULT_LIMITS, Limits
from realtime.protocol.messages import (
    CLIENT_MESSAGES,
    SERVER_MESSAGES,
    ClientMessage,
    ServerMessage,
)
from realtime.protocol.schema import Reading, parse, plain

Encoding = Literal["msgpack", "json"]

SUBPROTOCOLS: Final[dict[str, Encoding]] = {
    "moss.v1.msgpack": "msgpack",
    "moss.v1.json": "json",
}
# Types that may carry an item or a whole text, and so may be larger than other messages.
_LARGE_TYPES: Final = frozenset(
    {"session.start", "item.create", "item.truncate", "response.start", "interrupt"}
)


def choose_subprotocol(offered: Sequence[str]) -> tuple[str | None, Encoding]:
    """Return the subprotocol to echo and its encoding; the server's preference decides.

    A client that offers none speaks JSON and is echoed none. Raises `ProtocolError` when there are
    offers and none is known: refuse the handshake with HTTP 400.
    """
    if not offered:
        return None, "json"
    for name, encoding in SUBPROTOCOLS.items():
        if name in offered:
            return name, encoding
    known = ", ".join(SUBPROTOCOLS)
    raise ProtocolError(
        "bad_message",
        f"none of the offered subprotocols is known; offer {known}",
        scope="connection",
    )


def encode(message: ClientMessage | ServerMessage, encoding: Encoding) -> str | bytes:
    """Return a text frame (JSON) or a binary frame (msgpack)."""
    fields = {"type": message.type} | plain(message, base64_bytes=encoding == "json")
    if encoding == "json":
        # ASCII keeps lone surrogates of echoed strings sendable.
        return json.dumps(fields, separators=(",", ":"), allow_nan=False)
    packed: bytes = msgpack.packb(fields, unicode_errors="surrogatepass")
    return packed


def decode_client(
    data: str | bytes, encoding: Encoding, limits: Limits = DEFAULT_LIMITS
) -> ClientMessage:
    """Read what a client sent; raises `ProtocolError`, with the message's `m` where it has one."""
    fields = _unpack(data, encoding)
    try:
        kind = _client_type(fields)
        _check_size(kind, len(data), limits)
        reading = Reading(strict=True, base64_bytes=encoding == "json")
        message: ClientMessage = parse(CLIENT_MESSAGES[kind], fields, "", reading)
        return message
    except ProtocolError as error:
        error.m = _number_of(fields)
        error.reply_to = _event_id_of(fields)
        raise


def decode_server(data: str | bytes, encoding: Encoding) -> ServerMessage | None:
    """Read what the server sent; None for a type this version does not know.

    Unknown fields are ignored. Raises `ProtocolError`.
    """
    fields = _unpack(data, encoding)
    cls = SERVER_MESSAGES.get(str(fields.get("type")))
    if cls is None:
        return None
    reading = Reading(strict=False, base64_bytes=encoding == "json")
    message: ServerMessage = parse(cls, fields, "", reading)
    return message


def _unpack(data: str | bytes, encoding: Encoding) -> dict[str, Any]:
    if isinstance(data, str) != (encoding == "json"):
        expected = "JSON in text frames" if encoding == "json" else "msgpack in binary frames"
        raise ProtocolError("bad_message", f"this connection speaks {expected}")
    try:
        fields = json.loads(data) if encoding == "json" else unpack_msgpack(data)
    except (ValueError, RecursionError, msgpack.UnpackException) as error:
        reason = "nested too deep" if isinstance(error, RecursionError) else error
        raise ProtocolError("bad_message", f"not readable as {encoding}: {reason}") from None
    if not isinstance(fields, dict):
        raise ProtocolError("bad_message", f"a message is a map, not a {type(fields).__name__}")
    return fields


def unpack_msgpack(data: str | bytes) -> Any:
    """Read any msgpack; raises `ValueError`, `RecursionError` or `msgpack.UnpackException`."""
    return msgpack.unpackb(data, unicode_errors="surrogatepass", ext_hook=_refuse_extension)


def _refuse_extension(code: int, data: bytes) -> Any:
    raise ValueError(f"extension type {code} is not part of the protocol")


def _client_type(fields: dict[str, Any]) -> str:
    kind = fields.get("type")
    if not isinstance(kind, str):
        raise ProtocolError("bad_message", "a message has a string field `type`", param="type")
    if kind not in CLIENT_MESSAGES:
        known = ", ".join(CLIENT_MESSAGES)
        raise ProtocolError("unknown_type", f"unknown type {kind[:80]!r}; there are {known}")
    return kind


def _check_size(kind: str, size: int, limits: Limits) -> None:
    large = kind in _LARGE_TYPES
    allowed = limits.item_message_bytes if large else limits.control_message_bytes
    if size > allowed:
        raise ProtocolError("bad_message", f"{kind} may have {allowed} bytes; this has {size}")


def _number_of(fields: dict[str, Any]) -> int | None:
    m = fields.get("m")
    return m if isinstance(m, int) and not isinstance(m, bool) and m > 0 else None


def _event_id_of(fields: dict[str, Any]) -> str | None:
    event_id = fields.get("event_id")
    return event_id if isinstance(event_id, str) and len(event_id) <= 64 else None
