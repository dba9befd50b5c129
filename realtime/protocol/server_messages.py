"""What the server says. Milliseconds of a response count from its first sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from realtime.protocol.errors import ErrorCode, Scope
from realtime.protocol.limits import Limits
from realtime.protocol.parts import (
    AudioFormat,
    Context,
    ErrorBody,
    Flow,
    Gap,
    Generation,
    HeardSource,
    InputFormat,
    Item,
    ItemRef,
    Layout,
    Metrics,
    Status,
    TextOnlyUser,
    Timestamps,
    Why,
    WordTime,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FromServer:
    """What every server message has: its number `n` (1, 2, 3...) and the `event_id` it answers."""

    n: int | None = None
    reply_to: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStarted(FromServer):
    """The session is open; every setting as it took effect.

    `expires_at` (Unix seconds) is there where the client's token ends the connection.
    `resume_token` opens the next socket; it is used up once the client has answered on that one.

    A `resumed` session says `last_m`, the last client message applied, `next_input_seq`, the frame
    of user audio that is awaited, which `items` it has, and the `gaps` in its sound. That answer
    belongs to the socket and has no `n`; what the client missed follows it.
    """

    type: Literal["session.started"] = "session.started"
    session_id: str
    model: str
    voice: str | None = None
    audio: AudioFormat
    input_audio: InputFormat
    generation: Generation
    timestamps: Timestamps = "none"
    flow: Flow
    stall_flush_ms: int
    normalize: bool = False
    layout: Layout
    text_only_user: TextOnlyUser
    limits: Limits
    epoch: int = 0
    resumed: bool = False
    resume_token: str | None = None
    resume_ttl_s: int = 0
    expires_at: int | None = None
    last_m: int | None = None
    next_input_seq: int | None = None
    items: tuple[ItemRef, ...] | None = None
    gaps: tuple[Gap, ...] | None = None
    protocol: str = "1.0"
    server: str
    metadata: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionUpdated(FromServer):
    """Settings as they are from the next response on."""

    type: Literal["session.updated"] = "session.updated"
    voice: str | None = None
    input_audio: InputFormat
    generation: Generation
    timestamps: Timestamps = "none"
    flow: Flow
    stall_flush_ms: int
    normalize: bool = False
    metadata: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionClosed(FromServer):
    """The last message of a session."""

    type: Literal["session.closed"] = "session.closed"
    reason: Literal["client", "idle", "shutdown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionGoingAway(FromServer):
    """The server will close in `in_ms`."""

    type: Literal["session.going_away"] = "session.going_away"
    in_ms: int
    reason: Literal["drain", "expiry"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemCreated(FromServer):
    """An item joined the history, behind the item `after`; without that, at the front."""

    type: Literal["item.created"] = "item.created"
    item: Item
    after: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemTruncated(FromServer):
    """An assistant item was cut to `audio_end_ms`, a whole number of frames.

    `exact` is false where `text` is an estimate; `clamped` says that the position asked for lay
    beyond what was sent.
    """

    type: Literal["item.truncated"] = "item.truncated"
    item_id: str
    audio_end_ms: float
    text: str
    exact: bool
    clamped: bool = False
    heard_source: HeardSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemDeleted(FromServer):
    """An item left the history: deleted, trimmed, or nothing of it was heard."""

    type: Literal["item.deleted"] = "item.deleted"
    item_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class History(FromServer):
    """The history, oldest first."""

    type: Literal["history"] = "history"
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryCapsule(FromServer):
    """The history with its sound, to begin a session with; see `protocol.capsule`."""

    type: Literal["history.capsule"] = "history.capsule"
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class InputAudioCommitted(FromServer):
    """User audio of `duration_ms` becomes an item; `item.created` follows once it is encoded."""

    type: Literal["input_audio.committed"] = "input_audio.committed"
    item_id: str
    duration_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseStarted(FromServer):
    """A response was accepted. `position` 0 runs now, otherwise it is the place in the queue.

    `stream` is the handle of its audio frames. `epoch` is the session's at this moment.
    """

    type: Literal["response.started"] = "response.started"
    response_id: str
    item_id: str
    stream: int
    position: int
    context: Context
    epoch: int
    seed: int
    metadata: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseAudio(FromServer):
    """One audio frame under `transport: inline`: the binary header's fields and its payload.

    Numbered by `seq`; it has no `n`.
    """

    type: Literal["response.audio"] = "response.audio"
    response_id: str
    stream: int
    seq: int
    pts: int
    samples: int
    epoch: int
    flags: int
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseWords(FromServer):
    """Words whose sound is sent, with their times from the response's first sample.

    Times are estimates, so `exact` is false; they never go back.
    """

    type: Literal["response.words"] = "response.words"
    response_id: str
    words: tuple[WordTime, ...]
    exact: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseSegment(FromServer):
    """A segment was spoken to its end; `chars` counts code points of the response's text."""

    type: Literal["response.segment"] = "response.segment"
    response_id: str
    index: int
    audio_start_ms: float
    audio_end_ms: float
    chars: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseStalled(FromServer):
    """The response waits: for text, or because the listener has enough."""

    type: Literal["response.stalled"] = "response.stalled"
    response_id: str
    why: Why


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseResumed(FromServer):
    """It goes on."""

    type: Literal["response.resumed"] = "response.resumed"
    response_id: str
    why: Why


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseDone(FromServer):
    """The end of a response: no frame and no event of it comes after this.

    `audio_ms` was made, `sent_ms` of it sent. `heard_ms` and where it comes from are there for a
    cancelled response; `clamped` says that the client's position lay beyond what was sent.
    `reason` of an incomplete one: `max_audio`, `context`, `guard` or `text_timeout`.
    """

    type: Literal["response.done"] = "response.done"
    response_id: str
    status: Status
    reason: str | None = None
    error: ErrorBody | None = None
    audio_ms: float
    sent_ms: float
    heard_ms: float | None = None
    heard_source: HeardSource | None = None
    clamped: bool | None = None
    metrics: Metrics
    metadata: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned(FromServer):
    """Something the client should know; nothing failed."""

    type: Literal["warning"] = "warning"
    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Error(FromServer):
    """A client message that was not applied."""

    type: Literal["error"] = "error"
    scope: Scope
    code: ErrorCode
    message: str
    param: str | None = None
    retryable: bool
    response_id: str | None = None
    retry_after_ms: int | None = None
    expected: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pong(FromServer):
    """The answer to `ping`; `server_t` is the server's clock in milliseconds."""

    type: Literal["pong"] = "pong"
    t: float
    server_t: float


ServerMessage = (
    SessionStarted
    | SessionUpdated
    | SessionClosed
    | SessionGoingAway
    | ItemCreated
    | ItemTruncated
    | ItemDeleted
    | History
    | HistoryCapsule
    | InputAudioCommitted
    | ResponseStarted
    | ResponseAudio
    | ResponseWords
    | ResponseSegment
    | ResponseStalled
    | ResponseResumed
    | ResponseDone
    | Warned
    | Error
    | Pong
)
