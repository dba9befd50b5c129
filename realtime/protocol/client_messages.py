"""What a client says. Every message has a number `m`: the first is 1, then +1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from realtime.protocol.constraints import Length, Range
from realtime.protocol.parts import (
    AudioRequest,
    Context,
    Delta,
    EventId,
    Flow,
    Generation,
    Id,
    InputRequest,
    InputUpdate,
    Layout,
    NewItem,
    Played,
    Position,
    Resume,
    Text,
    TextOnlyUser,
    Timestamps,
    VoiceRef,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FromClient:
    """What every client message has: its number `m` (1, 2, 3...) and an id to be answered by."""

    m: Annotated[int, Range(1, 2**53 - 1)]
    event_id: EventId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStart(FromClient):
    """Open the session; the first message.

    `capsule` is a history that `history.export` gave; without `voice` its own one speaks.
    `history` is appended as by `item.create`.

    `timestamps`: whether words are told with their times.

    `normalize`: the text of responses is Markdown with numbers and signs, to be spoken as words.

    With `session_id` and `resume` it takes a session up on this socket instead: its `m` does not
    count, all numbers go on, and the settings stay as they were.
    """

    type: Literal["session.start"] = "session.start"
    session_id: Id | None = None
    resume: Resume | None = None
    model: str | None = None
    voice: str | VoiceRef | None = None
    audio: AudioRequest | None = None
    input_audio: InputRequest | None = None
    generation: Generation | None = None
    timestamps: Timestamps = "none"
    flow: Flow | None = None
    stall_flush_ms: Annotated[int, Range(0, 60_000)] | None = None
    normalize: bool = False
    layout: Layout = "training"
    text_only_user: TextOnlyUser = "include"
    capsule: bytes | None = None
    history: tuple[NewItem, ...] = ()
    metadata: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionUpdate(FromClient):
    """Change settings from the next response on; `input_audio` at once, between two utterances."""

    type: Literal["session.update"] = "session.update"
    voice: str | VoiceRef | None = None
    input_audio: InputUpdate | None = None
    generation: Generation | None = None
    timestamps: Timestamps | None = None
    flow: Flow | None = None
    stall_flush_ms: Annotated[int, Range(0, 60_000)] | None = None
    normalize: bool | None = None
    metadata: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionClose(FromClient):
    """End the session and delete its history, or `keep` it to be resumed."""

    type: Literal["session.close"] = "session.close"
    keep: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemCreate(FromClient):
    """Add to the history, at its end or after the item `after`."""

    type: Literal["item.create"] = "item.create"
    item: NewItem
    after: Id | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemTruncate(FromClient):
    """Cut an assistant item to what was heard of it."""

    type: Literal["item.truncate"] = "item.truncate"
    item_id: Id
    audio_end_ms: Position
    text: Text | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemDelete(FromClient):
    """Take an item out of the history."""

    type: Literal["item.delete"] = "item.delete"
    item_id: Id


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryClear(FromClient):
    """Take all items out of the history; what is left is answered."""

    type: Literal["history.clear"] = "history.clear"


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryExport(FromClient):
    """Ask for the history as a capsule."""

    type: Literal["history.export"] = "history.export"


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryGet(FromClient):
    """Ask for the history, with its codes or without."""

    type: Literal["history.get"] = "history.get"
    audio: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InputAudioCommit(FromClient):
    """Make an item of the user audio since the last commit, and its transcript; either may be
    absent. A response started after this hears it.
    """

    type: Literal["input_audio.commit"] = "input_audio.commit"
    text: Text | None = None
    item_id: Id | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InputAudioClear(FromClient):
    """Forget the user audio since the last commit."""

    type: Literal["input_audio.clear"] = "input_audio.clear"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseStart(FromClient):
    """Open a response. `text` with `end` makes it one-shot.

    `context` `none` speaks beside the conversation and leaves no trace in it; `commit` false
    hears the conversation and leaves none.
    """

    type: Literal["response.start"] = "response.start"
    response_id: Id
    context: Context | tuple[str, ...] = "conversation"
    commit: bool = True
    voice: str | VoiceRef | None = None
    generation: Generation | None = None
    normalize: bool | None = None
    text: str | None = None
    end: bool = False
    metadata: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseText(FromClient):
    """More text, cut anywhere; white space is kept byte for byte."""

    type: Literal["response.text"] = "response.text"
    response_id: Id
    delta: Delta


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseFlush(FromClient):
    """Close the segment: speak all text so far to its end."""

    type: Literal["response.flush"] = "response.flush"
    response_id: Id


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseEnd(FromClient):
    """No more text."""

    type: Literal["response.end"] = "response.end"
    response_id: Id


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseCancel(FromClient):
    """Stop one response."""

    type: Literal["response.cancel"] = "response.cancel"
    response_id: Id
    played_ms: Position | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupt(FromClient):
    """Barge-in: cancel every conversation response, keep what was heard, raise the epoch by 1."""

    type: Literal["interrupt"] = "interrupt"
    played: Played | None = None
    reason: Annotated[str, Length(0, 128)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Playback(FromClient):
    """Where the listener is; also the credit of flow mode `ack`."""

    type: Literal["playback"] = "playback"
    response_id: Id
    played_ms: Position
    buffered_ms: Position | None = None
    underruns: Annotated[int, Range(0, 2**53 - 1)] | None = None
    state: Literal["playing", "stalled", "done"] = "playing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ping(FromClient):
    """Heartbeat; `t` comes back."""

    type: Literal["ping"] = "ping"
    t: float


ClientMessage = (
    SessionStart
    | SessionUpdate
    | SessionClose
    | ItemCreate
    | ItemTruncate
    | ItemDelete
    | HistoryGet
    | HistoryClear
    | HistoryExport
    | InputAudioCommit
    | InputAudioClear
    | ResponseStart
    | ResponseText
    | ResponseFlush
    | ResponseEnd
    | ResponseCancel
    | Interrupt
    | Playback
    | Ping
)
