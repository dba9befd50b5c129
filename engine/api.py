"""The boundary between server and engine: commands and events as frozen dataclasses.

A *grid* is an i32 array `[T, 1 + n_vq]`: column 0 is a text id, the others one code per codebook. A
*frame index* counts the frames of one response from 0 and goes on across its segments. *Samples*
are per channel at the model's rate. Row and stream ids are u64 chosen by the server and never
reused. Commands apply in order; a row answers either with one `Refused`, or
with any number of `Frames`, `Parked`, `Resumed`, `Segment` and then exactly one `Done`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import msgpack
import numpy as np
from numpy.typing import NDArray

I32Grid = NDArray[np.int32]  # [T, 1 + n_vq]
U16Codes = NDArray[np.uint16]  # [F, n_vq]
F32Samples = NDArray[np.float32]  # [samples] or [samples, channels]

Lane = Literal["live", "throughput"]
ParkReason = Literal["text", "flow"]
SegmentReason = Literal["eos", "flush", "budget"]


@dataclasses.dataclass(frozen=True, slots=True)
class Sampling:
    """How codes are drawn.

    `temperature` 0 is greedy; `top_k` 0, `top_p` 1, `repetition_penalty` 1 switch a filter off.
    `repetition_window` is in frames; 0 looks back over the whole segment.
    """

    temperature: float = 0.8
    top_p: float = 0.6
    top_k: int = 30
    repetition_penalty: float = 1.1
    repetition_window: int = 50


@dataclasses.dataclass(frozen=True, slots=True)
class TextSampling:
    """How text ids are drawn, by models that draw them; fields as in `Sampling`."""

    temperature: float = 1.5
    top_p: float = 1.0
    top_k: int = 50


@dataclasses.dataclass(frozen=True, slots=True)
class ModelInfo:
    """What a loaded model is; the server takes every rate and size from here."""

    name: str
    rate_hz: int
    channels: int
    samples_per_frame: int
    n_vq: int
    codebook_size: int
    max_grid_rows: int
    capacity_rows: int
    sampling_defaults: Sampling
    text_sampling_defaults: TextSampling | None = None
    """None for a model that draws no text."""
    variant: str = "realtime"
    """Which model of the family; `engine.models.variants` knows them."""

    @property
    def frame_ms(self) -> float:
        """Length of one frame of sound in milliseconds."""
        return 1000.0 * self.samples_per_frame / self.rate_hz


# --- commands: server -> engine


@dataclasses.dataclass(frozen=True, slots=True)
class Warm:
    """Prefill `grid` in the background and keep it for `pin_s`.

    A newer `Warm` with the same `key` replaces the pin.
    """

    key: str
    model: str
    grid: I32Grid
    pin_s: float


@dataclasses.dataclass(frozen=True, slots=True)
class Open:
    """Start a row. `grid` is the whole context, up to and including the assistant header.

    `decoder_codes` are the assistant frames kept in this context, in order: the codec goes on after
    them. `generated` are frames of this response that were already made (after an engine restart):
    frame index and random keys go on after them, and so does the codec. Those before
    `segment_frame` belong to segments that are over and are in `grid`; the others are of the
    segment whose ids are all fed again. `chunk_frames` says how many came in each `Frames`; empty,
    they count as one. `max_frames` caps the response. `text_sampling` None leaves it to the model.
    `n_vq` is how many codebooks a frame has in `decoder_codes` and in the response, None: all; most
    models know no other.
    """

    row: int
    model: str
    grid: I32Grid
    decoder_codes: U16Codes
    generated: U16Codes
    seed: int
    sampling: Sampling
    lane: Lane
    prebuffer_ms: int
    max_ahead_ms: int
    max_frames: int
    text_sampling: TextSampling | None = None
    segment_frame: int = 0
    chunk_frames: tuple[int, ...] = ()
    n_vq: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Feed:
    """Text ids of the current segment, in order."""

    row: int
    ids: tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Flush:
    """The segment's text is over: pad to its end.

    `next_prefix` opens the next segment when an id follows.
    """

    row: int
    next_prefix: I32Grid


@dataclasses.dataclass(frozen=True, slots=True)
class End:
    """No more text at all."""

    row: int


@dataclasses.dataclass(frozen=True, slots=True)
class Cancel:
    """Stop the row; idempotent."""

    row: int


@dataclasses.dataclass(frozen=True, slots=True)
class Sent:
    """Cumulative samples handed to the transport, on the monotonic clock."""

    row: int
    samples: int
    at_ns: int


@dataclasses.dataclass(frozen=True, slots=True)
class Played:
    """Cumulative samples heard, on the monotonic clock.

    With flow `none` what the socket drained counts as heard.
    """

    row: int
    samples: int
    at_ns: int


@dataclasses.dataclass(frozen=True, slots=True)
class Encode:
    """Encode sound to codes as it arrives.

    `pcm` is f32 at the model's rate, of any length: mono `[samples]`, which a model of several
    channels gets on each, or `[samples, channels]`.
    """

    stream: int
    model: str
    pcm: F32Samples
    end: bool
    loudness: Literal["keep", "normalise"]


@dataclasses.dataclass(frozen=True, slots=True)
class CancelEncode:
    """Forget an encode stream."""

    stream: int


@dataclasses.dataclass(frozen=True, slots=True)
class Stop:
    """Finish rows for at most `drain_s`, then cut them, release everything and return."""

    drain_s: float


Command = Warm | Open | Feed | Flush | End | Cancel | Sent | Played | Encode | CancelEncode | Stop

# --- events: engine -> server


@dataclasses.dataclass(frozen=True, slots=True)
class Ready:
    """Sent once, after warm-up; nothing is served before it."""

    models: tuple[ModelInfo, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Frames:
    """The sound of one codec call.

    `codes` u16 `[n, n_vq]`; `valid` bool `[n]` is false where the model drew an id outside the
    codebook: such a frame counts in indices and history but has no samples. `pcm` f32 `[samples,
    channels]`.
    """

    row: int
    first_frame: int
    codes: U16Codes
    valid: NDArray[np.bool_]
    pcm: F32Samples
    discontinuity: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Parked:
    """The row waits: for text, or because the listener has enough sound ahead."""

    row: int
    why: ParkReason


@dataclasses.dataclass(frozen=True, slots=True)
class Resumed:
    """The row runs again after `Parked`."""

    row: int
    why: ParkReason


@dataclasses.dataclass(frozen=True, slots=True)
class Segment:
    """A segment ended before frame `end_frame`.

    Ids beyond `text_ids_consumed` were dropped and are not in the grid.
    """

    row: int
    index: int
    end_frame: int
    text_ids_consumed: int
    reason: SegmentReason


@dataclasses.dataclass(frozen=True, slots=True)
class Counts:
    """What a row cost."""

    queue_ms: float = 0.0
    prefill_grid_rows: int = 0
    reused_grid_rows: int = 0
    steps: int = 0
    frames: int = 0
    starved_ms: float = 0.0
    flow_paused_ms: float = 0.0
    text_ids: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Done:
    """The last event of a row.

    `reason`: completed, cancelled, max_audio, context, failed or `guard:NAME`.
    """

    row: int
    reason: str
    error: str
    counts: Counts


@dataclasses.dataclass(frozen=True, slots=True)
class Refused:
    """Instead of any other event of a row.

    `code` is `overloaded` when there is no capacity now; any other code names a bad request.
    """

    row: int
    code: str
    message: str
    retry_after_ms: int


@dataclasses.dataclass(frozen=True, slots=True)
class Encoded:
    """Codes u16 `[n, n_vq]` of an encode stream, from `first_frame` on; `end` on the last."""

    stream: int
    first_frame: int
    codes: U16Codes
    end: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Failed:
    """A warm-up of a context, an encode stream, or the whole process failed; never a row."""

    what: Literal["warm", "encode", "process"]
    id: str
    error: str


@dataclasses.dataclass(frozen=True, slots=True)
class Stats:
    """Heartbeat, at least every 250 ms while the engine lives.

    `progress` grows with every tick that ran.
    """

    progress: int
    rows_open: int
    rows_running: int
    rows_queued: int
    rows_parked: int
    blocks_used: int
    blocks_total: int
    codec_slots_used: int
    codec_slots_total: int
    frames_total: int
    step_ms: float
    chunk_ms: float


Event = Ready | Frames | Parked | Resumed | Segment | Done | Refused | Encoded | Failed | Stats

# --- wire

_TYPES: dict[str, type] = {
    cls.__name__: cls
    for cls in (
        *(Warm, Open, Feed, Flush, End, Cancel, Sent, Played, Encode, CancelEncode, Stop),
        *(Ready, Frames, Parked, Resumed, Segment, Done, Refused, Encoded, Failed, Stats),
        *(Sampling, TextSampling, ModelInfo, Counts),
    )
}


def pack(message: Command | Event) -> bytes:
    """Encode as a msgpack map `{t: type name, ...fields}`.

    An array is `{dtype, shape, data}`, little-endian.
    """
    packed: bytes = msgpack.packb(_plain(message))
    return packed


def unpack(data: bytes) -> Any:
    """Decode what `pack` made. Raises `ValueError` on anything else."""
    try:
        return _rich(msgpack.unpackb(data))
    except (KeyError, TypeError, msgpack.UnpackException) as error:
        raise ValueError(f"not an engine message: {data[:40]!r}... ({error})") from error


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {"t": type(value).__name__} | {
            f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)
        }
    if isinstance(value, np.ndarray):
        little = np.ascontiguousarray(value, dtype=value.dtype.newbyteorder("<"))
        return {"dtype": little.dtype.str, "shape": list(value.shape), "data": little.tobytes()}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def _rich(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_rich(item) for item in value)
    if not isinstance(value, dict):
        return value
    if "dtype" in value:
        return np.frombuffer(value["data"], dtype=value["dtype"]).reshape(value["shape"])
    return _TYPES[value["t"]](
        **{name: _rich(field) for name, field in value.items() if name != "t"}
    )
