"""The catalogue of protocol v1: every message both ways, by its `type`."""

from __future__ import annotations

from typing import get_args

from realtime.protocol.client_messages import (
    ClientMessage,
    FromClient,
    HistoryGet,
    Interrupt,
    ItemCreate,
    ItemTruncate,
    Ping,
    Playback,
    ResponseCancel,
    ResponseEnd,
    ResponseFlush,
    ResponseStart,
    ResponseText,
    SessionClose,
    SessionStart,
    SessionUpdate,
)
from realtime.protocol.parts import (
    AudioFormat,
    AudioRequest,
    Codec,
    Context,
    ErrorBody,
    Flow,
    FrameMs,
    Generation,
    HeardSource,
    Item,
    ItemAudio,
    Layout,
    Metrics,
    NewItem,
    Played,
    Status,
    TextOnlyUser,
    Transport,
    VoiceRef,
    Why,
)
from realtime.protocol.server_messages import (
    Error,
    FromServer,
    History,
    ItemCreated,
    ItemDeleted,
    ItemTruncated,
    Pong,
    ResponseAudio,
    ResponseDone,
    ResponseResumed,
    ResponseSegment,
    ResponseStalled,
    ResponseStarted,
    ServerMessage,
    SessionClosed,
    SessionGoingAway,
    SessionStarted,
    SessionUpdated,
    Warned,
)

__all__ = [
    "CLIENT_MESSAGES",
    "LATER_FIELDS",
    "LATER_TYPES",
    "SERVER_MESSAGES",
    "AudioFormat",
    "AudioRequest",
    "ClientMessage",
    "Codec",
    "Context",
    "Error",
    "ErrorBody",
    "Flow",
    "FrameMs",
    "FromClient",
    "FromServer",
    "Generation",
    "HeardSource",
    "History",
    "HistoryGet",
    "Interrupt",
    "Item",
    "ItemAudio",
    "ItemCreate",
    "ItemCreated",
    "ItemDeleted",
    "ItemTruncate",
    "ItemTruncated",
    "Layout",
    "Metrics",
    "NewItem",
    "Ping",
    "Playback",
    "Played",
    "Pong",
    "ResponseAudio",
    "ResponseCancel",
    "ResponseDone",
    "ResponseEnd",
    "ResponseFlush",
    "ResponseResumed",
    "ResponseSegment",
    "ResponseStalled",
    "ResponseStart",
    "ResponseStarted",
    "ResponseText",
    "ServerMessage",
    "SessionClose",
    "SessionClosed",
    "SessionGoingAway",
    "SessionStart",
    "SessionStarted",
    "SessionUpdate",
    "SessionUpdated",
    "Status",
    "TextOnlyUser",
    "Transport",
    "VoiceRef",
    "Warned",
    "Why",
]

CLIENT_MESSAGES: dict[str, type[ClientMessage]] = {
    cls.__dataclass_fields__["type"].default: cls for cls in get_args(ClientMessage)
}
SERVER_MESSAGES: dict[str, type[ServerMessage]] = {
    cls.__dataclass_fields__["type"].default: cls for cls in get_args(ServerMessage)
}

# What protocol v1 has and this server does not do yet; asking for it answers `unsupported`.
LATER_TYPES = frozenset(
    {
        "item.delete",
        "history.clear",
        "history.export",
        "input_audio.commit",
        "input_audio.clear",
    }
)
LATER_FIELDS: dict[str, frozenset[str]] = {
    "session.start": frozenset({"session_id", "resume", "input_audio"}),
    "session.update": frozenset({"input_audio"}),
}
