"""The pieces that messages of protocol v1 are made of.

Field names are the wire's. A field that is None is not sent. `bytes` are base64 strings under JSON.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from realtime.protocol.constraints import Length, Range
from realtime.protocol.errors import ErrorCode

Id = Annotated[str, Length(1, 128)]
EventId = Annotated[str, Length(1, 64)]
Delta = Annotated[str, Length(1, 4096, "text_too_long")]
Text = Annotated[str, Length(0, 8000, "text_too_long")]
SpokenText = Annotated[str, Length(0, 80_000, "text_too_long")]
# Of a listener. Below 0 (sound handed out, less the latency of the way to the ear) counts as 0.
Position = Annotated[float, Range(-86_400_000, 86_400_000)]

Role = Literal["user", "assistant", "system"]
Codec = Literal["opus", "pcm_s16le", "pcm_f32le", "mulaw", "alaw"]
Transport = Literal["binary", "inline"]
FrameMs = Literal[20, 40, 60, 80]
Layout = Literal["training", "upstream_streaming"]
TextOnlyUser = Literal["include", "skip"]
FlowMode = Literal["ack", "none"]
Context = Literal["conversation", "none"]
Timestamps = Literal["none", "words"]
WordTime = tuple[str, float, float]  # word, start and end in ms
Status = Literal["completed", "cancelled", "incomplete", "failed"]
Why = Literal["text", "flow"]
HeardSource = Literal["client", "playback", "clock", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class VoiceRef:
    """A voice by its content-addressed id."""

    id: Id


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioRequest:
    """The sound a client asks for. `codec` is a string so that any name gets a helpful answer."""

    codec: str = "pcm_s16le"
    sample_rate: int | None = None
    frame_ms: FrameMs = 80
    bitrate: Annotated[int, Range(6_000, 510_000)] | None = None
    transport: Transport = "binary"


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioFormat:
    """The sound in effect.

    `pre_skip` and `frame_samples` are samples of the clock of `pts`, which runs at `sample_rate`,
    for Opus always at 48 kHz: there `sample_rate` bounds the sound's bandwidth.
    """

    codec: Codec
    sample_rate: int
    channels: int
    frame_ms: FrameMs
    frame_samples: int
    bitrate: int | None = None
    pre_skip: int = 0
    transport: Transport = "binary"


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRequest:
    """The user's sound as a client will send it: one channel. `codec` as in `AudioRequest`."""

    codec: str = "pcm_s16le"
    sample_rate: Annotated[int, Range(8_000, 48_000)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InputUpdate:
    """Another rate for the user's sound. The codec stays; it may be repeated."""

    codec: str | None = None
    sample_rate: Annotated[int, Range(8_000, 48_000)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFormat:
    """The user's sound as the server expects it. Opus may be of any rate; its clock is 48 kHz."""

    codec: Codec
    sample_rate: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """How to draw sound; a field left out falls back to the session's, then the model's."""

    temperature: Annotated[float, Range(0, 2)] | None = None
    top_p: Annotated[float, Range(0, 1)] | None = None
    top_k: Annotated[int, Range(0, 4096)] | None = None
    repetition_penalty: Annotated[float, Range(0.5, 2)] | None = None
    repetition_window: Annotated[int, Range(0, 10_000)] | None = None
    seed: Annotated[int, Range(0, 2**53 - 1)] | None = None
    max_audio_s: Annotated[float, Range(0.08, 600)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """`ack`: the client reports `playback`, and the server runs at most `max_ahead_ms` ahead of it.

    `none`: the server runs as fast as the socket drains.
    """

    mode: FlowMode = "none"
    max_ahead_ms: Annotated[int, Range(200, 60_000)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemAudio:
    """Sound as codec codes: u16 little-endian `[frames, n_vq]`, packed."""

    codes: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class NewItem:
    """A history item as a client gives it: text, sound, or both.

    `spoken_text` is what the model is shown in place of `text`.
    """

    role: Role
    id: Id | None = None
    text: Text | None = None
    spoken_text: SpokenText | None = None
    audio: ItemAudio | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A history item. An assistant item's `text` and `audio_ms` are what was heard of it.

    `in_context` is false once the model no longer sees it. `exact` is false where `text` is an
    estimate. `generated_text` is there where it differs from `text`, and so is `spoken_text`: the
    text heard as `normalize` put it for the model.
    """

    id: str
    role: Role
    text: str
    audio_ms: float
    in_context: bool = True
    exact: bool = True
    generated_text: str | None = None
    spoken_text: str | None = None
    audio: ItemAudio | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemRef:
    """An item that is in the history."""

    id: str
    role: Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """What a client has of the session that it takes up again.

    `received` has `[stream, seq]` of the last audio frame of each stream that is not over,
    `after_event` the last `n`.
    """

    token: Annotated[str, Length(1, 128)]
    received: tuple[tuple[int, int], ...] = ()
    after_event: Annotated[int, Range(0, 2**53 - 1)] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Frames `first_seq` to `last_seq` of a stream that the client missed and that are gone."""

    stream: int
    first_seq: int
    last_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """How far the listener got in a response; `text` where the client knows the words heard."""

    response_id: Id
    ms: Position
    text: Text | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorBody:
    """Why a response failed."""

    code: ErrorCode
    message: str
    retryable: bool
    retry_after_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """What a response cost.

    `ttfa_ms` runs from `response.start`, `text_to_audio_ms` from the delta that made sound
    possible, both to the first sound handed out; `rtf` is time to make over length of the sound.
    """

    queue_ms: float = 0.0
    text_to_audio_ms: float | None = None
    ttfa_ms: float | None = None
    steps: int = 0
    rtf: float | None = None
    starved_ms: float = 0.0
    flow_paused_ms: float = 0.0
    text_tokens: int = 0
