"""A deterministic engine without a model: the API of `engine.engine.Engine`, numpy only.

It follows every rule of `engine/api.py` and speaks `engine.index_sound`, so a test can prove that a
client heard exactly the samples that were made. `FakeScript` sets its size, pace and faults.
"""

from __future__ import annotations

import dataclasses
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from engine.api import (
    Cancel,
    CancelEncode,
    Command,
    Counts,
    Done,
    Encode,
    Encoded,
    End,
    Event,
    Feed,
    Flush,
    Frames,
    ModelInfo,
    Open,
    Parked,
    ParkReason,
    Played,
    Ready,
    Refused,
    Resumed,
    Sampling,
    Segment,
    SegmentReason,
    Stats,
    Stop,
    U16Codes,
)
from engine.index_sound import chirp, ramp

PREFILL_TEXT_IDS = 12
HEARTBEAT_S = 0.1
FLOW_HYSTERESIS_FRAMES = 2


FAKE_MODEL = ModelInfo(
    name="moss-tts-realtime",
    rate_hz=24000,
    channels=1,
    samples_per_frame=1920,
    n_vq=8,
    codebook_size=1024,
    max_grid_rows=4096,
    capacity_rows=16,
    sampling_defaults=Sampling(),
)


@dataclasses.dataclass(frozen=True, slots=True)
class FakeScript:
    """What the fake engine is and does.

    A segment of n text ids has `n * frames_per_id + tail_frames` frames; where `text_is_fed` is
    false the text is in the prompt, and a row speaks as soon as its (empty) text has ended. The
    `..._after_frames` faults apply to each row when it has that many frames: *block* holds that row
    (0: in prefill) and *hang* the whole engine, heartbeat included, until `FakeEngine.release`;
    *fail* ends the row as failed; *die* raises from `run`. `refuse` is the code every `Open` is
    refused with.
    """

    model: ModelInfo = FAKE_MODEL
    sound: Literal["chirp", "ramp"] = "chirp"
    frames_per_id: int = 3
    tail_frames: int = 5
    text_is_fed: bool = True
    chunk_ramp_frames: tuple[int, ...] = (1,)
    max_queued_rows: int = 64
    step_s: float = 0.0
    never_end: bool = False
    block_after_frames: int | None = None
    hang_after_frames: int | None = None
    fail_after_frames: int | None = None
    die_after_frames: int | None = None
    refuse: str = ""


@dataclasses.dataclass(slots=True)
class _Segment:
    ids: int = 0
    closed_by: SegmentReason | None = None


class _Row:
    def __init__(self, command: Open) -> None:
        self.open = command
        self.frames = len(command.generated)
        self.published_frames = self.frames
        self.segments = deque([_Segment()])
        self.segment_index = 0
        self.segment_start = command.segment_frame
        self.text_ids = 0
        self.played_samples = 0
        self.parked: ParkReason | None = None
        self.chunks = 0


class FakeEngine:
    """Runs rows one frame a tick each, in the order they came.

    `log` holds `(tick, command)` of every command applied, `ticks` the ticks so far.
    """

    def __init__(self, publish: Callable[[Event], None], script: FakeScript | None = None) -> None:
        self.script = script or FakeScript()
        self.log: list[tuple[int, Command]] = []
        self.ticks = 0
        self._publish = publish
        self._inbox: queue.SimpleQueue[Command | None] = queue.SimpleQueue()
        self._released = threading.Event()
        self._running: dict[int, _Row] = {}
        self._queued: dict[int, _Row] = {}
        self._streams: dict[int, tuple[int, np.ndarray]] = {}  # stream -> (first frame, samples)
        self._frames_total = 0
        self._stats_at = 0.0
        self._stop: Stop | None = None

    def submit(self, command: Command) -> None:
        """Queue a command; thread-safe, never blocks."""
        self._inbox.put(command)

    def release(self) -> None:
        """End the scripted block or hang, for good."""
        self._released.set()
        self._inbox.put(None)

    def run(self) -> None:
        """Run until `Stop` was handled."""
        self._publish(Ready((self.script.model,)))
        deadline = float("inf")
        while not (self._stop and (not self._running or time.monotonic() >= deadline)):
            busy = self._tick()
            self._apply_commands(wait_s=0.0 if busy else HEARTBEAT_S)
            if self._stop and deadline == float("inf"):
                deadline = time.monotonic() + self._stop.drain_s
            self._heartbeat()
        for row in [*self._running.values(), *self._queued.values()]:
            self._finish(row, "cancelled")

    def step(self) -> bool:
        """Apply what was submitted and tick once, without a thread; true when a row went on."""
        self._apply_commands(wait_s=0.0)
        return self._tick()

    def _tick(self) -> bool:
        """Step every row once; true when one made progress."""
        self.ticks += 1
        while self._queued and len(self._running) < self.script.model.capacity_rows:
            row = self._queued.pop(next(iter(self._queued)))
            self._running[row.open.row] = row
        busy = [self._step(row) for row in list(self._running.values())]
        if any(busy) and self.script.step_s:
            time.sleep(self.script.step_s)
        return any(busy)

    def _step(self, row: _Row) -> bool:
        script, segment = self.script, row.segments[0]
        if self._fault(row):
            return False
        if not segment.ids and segment.closed_by and script.text_is_fed:
            return self._close_segment(row)
        if self._flow_stops(row):
            return self._park(row, "flow")
        allowed = segment.ids * script.frames_per_id
        if segment.closed_by:
            allowed += 1 << 40 if script.never_end else script.tail_frames
        elif row.frames == row.segment_start and segment.ids < PREFILL_TEXT_IDS:
            return self._park(row, "text") if row.frames else False
        if row.frames - row.segment_start < allowed:
            return self._make_frame(row)
        return self._close_segment(row) if segment.closed_by else self._park(row, "text")

    def _fault(self, row: _Row) -> bool:
        script = self.script
        if script.die_after_frames is not None and row.frames >= script.die_after_frames:
            raise RuntimeError(f"scripted death after {row.frames} frames")
        if script.fail_after_frames is not None and row.frames >= script.fail_after_frames:
            self._publish_pending(row)
            self._finish(row, "failed", "scripted failure")
            return True
        if script.hang_after_frames is not None and row.frames >= script.hang_after_frames:
            self._released.wait()
        blocked = script.block_after_frames is not None and row.frames >= script.block_after_frames
        return blocked and not self._released.is_set()

    def _flow_stops(self, row: _Row) -> bool:
        made = row.frames * self.script.model.samples_per_frame
        ahead_ms = (made - row.played_samples) * 1000 / self.script.model.rate_hz
        room_frames = FLOW_HYSTERESIS_FRAMES if row.parked == "flow" else 1
        room_ms = room_frames * self.script.model.frame_ms
        return ahead_ms > 0 and ahead_ms + room_ms > row.open.max_ahead_ms

    def _park(self, row: _Row, why: ParkReason) -> bool:
        self._publish_pending(row)
        if row.parked != why:
            row.parked = why
            self._publish(Parked(row.open.row, why))
        return False

    def _make_frame(self, row: _Row) -> bool:
        if row.parked:
            self._publish(Resumed(row.open.row, row.parked))
            row.parked = None
        row.frames += 1
        self._frames_total += 1
        chunk_ramp = self.script.chunk_ramp_frames
        if row.frames - row.published_frames >= chunk_ramp[min(row.chunks, len(chunk_ramp) - 1)]:
            self._publish_pending(row)
        if row.frames >= row.open.max_frames:
            self._publish_pending(row)
            self._publish_segment(row, "budget")
            self._finish(row, "max_audio")
        return True

    def _publish_pending(self, row: _Row) -> None:
        first, count = row.published_frames, row.frames - row.published_frames
        if not count:
            return
        model, spf = self.script.model, self.script.model.samples_per_frame
        if self.script.sound == "chirp":
            mono = chirp(first * spf, count * spf, model.rate_hz)
        else:
            mono = ramp(first * spf, count * spf)
        pcm = np.repeat(mono[:, None], model.channels, axis=1)
        codes, valid = self._codes(row.open, first, count), np.ones(count, dtype=np.bool_)
        row.published_frames = row.frames
        row.chunks += 1
        self._publish(Frames(row.open.row, first, codes, valid, pcm, discontinuity=False))

    def _codes(self, opened: Open, first: int, count: int) -> U16Codes:
        size, n_vq = self.script.model.codebook_size, opened.n_vq or self.script.model.n_vq
        index = (
            opened.seed % size + np.arange(first, first + count)[:, None] + 131 * np.arange(n_vq)
        )
        return (index % size).astype(np.uint16)

    def _close_segment(self, row: _Row) -> bool:
        self._publish_pending(row)
        segment = row.segments[0]
        assert segment.closed_by
        if segment.ids:
            self._publish_segment(row, segment.closed_by)
        if segment.closed_by == "eos":
            self._finish(row, "completed")
            return True
        row.segments.popleft()
        row.segments = row.segments or deque([_Segment()])
        row.segment_start = row.frames
        return True

    def _publish_segment(self, row: _Row, reason: SegmentReason) -> None:
        consumed = row.segments[0].ids
        self._publish(Segment(row.open.row, row.segment_index, row.frames, consumed, reason))
        row.segment_index += 1

    def _finish(self, row: _Row, reason: str, error: str = "") -> None:
        self._running.pop(row.open.row, None)
        self._queued.pop(row.open.row, None)
        counts = Counts(
            prefill_grid_rows=len(row.open.grid),
            steps=row.frames,
            frames=row.frames,
            text_ids=row.text_ids,
        )
        self._publish(Done(row.open.row, reason, error, counts))

    def _apply_commands(self, wait_s: float) -> None:
        try:
            command = self._inbox.get(timeout=wait_s) if wait_s else self._inbox.get_nowait()
            while True:
                if command is not None:
                    self.log.append((self.ticks, command))
                    self._apply(command)
                command = self._inbox.get_nowait()
        except queue.Empty:
            pass

    def _apply(self, command: Command) -> None:
        match command:
            case Open():
                self._admit(command)
            case Encode():
                self._encode(command)
            case CancelEncode():
                self._streams.pop(command.stream, None)
            case Stop():
                self._stop = command
            case Feed() | Flush() | End() | Cancel() | Played():
                row = self._running.get(command.row) or self._queued.get(command.row)
                if row:
                    self._apply_to_row(row, command)

    def _apply_to_row(self, row: _Row, command: Feed | Flush | End | Cancel | Played) -> None:
        match command:
            case Feed():
                if row.segments[-1].closed_by:
                    row.segments.append(_Segment())
                row.segments[-1].ids += len(command.ids)
                row.text_ids += len(command.ids)
            case Flush():
                if row.segments[-1].ids and not row.segments[-1].closed_by:
                    row.segments[-1].closed_by = "flush"
            case End():
                if row.segments[-1].closed_by:
                    row.segments.append(_Segment())
                row.segments[-1].closed_by = "eos"
            case Played():
                row.played_samples = max(row.played_samples, command.samples)
            case Cancel():
                self._finish(row, "cancelled")

    def _admit(self, command: Open) -> None:
        waiting = len(self._running) + len(self._queued)
        if self.script.refuse:
            self._publish(Refused(command.row, self.script.refuse, "scripted refusal", 0))
        elif self._stop or waiting >= self.script.model.capacity_rows + self.script.max_queued_rows:
            message = f"{waiting} rows are open"
            self._publish(Refused(command.row, "overloaded", message, retry_after_ms=1000))
        else:
            self._queued[command.row] = _Row(command)

    def _encode(self, command: Encode) -> None:
        """Code of codebook q in a frame: the frame's mean absolute level in 1/10000, plus 7 q."""
        first, held = self._streams.pop(command.stream, (0, np.zeros(0, np.float32)))
        pcm = np.concatenate([held, command.pcm])
        spf = self.script.model.samples_per_frame
        if command.end and len(pcm) % spf:
            pcm = np.pad(pcm, (0, spf - len(pcm) % spf))
        count = len(pcm) // spf
        level = np.abs(pcm[: count * spf].reshape(count, spf)).mean(axis=1, keepdims=True)
        codes = (level * 10000).astype(np.int64) + 7 * np.arange(self.script.model.n_vq)
        codes = (codes % self.script.model.codebook_size).astype(np.uint16)
        if count or command.end:
            self._publish(Encoded(command.stream, first, codes, command.end))
        if not command.end:
            self._streams[command.stream] = (first + count, pcm[count * spf :])

    def _heartbeat(self) -> None:
        if time.monotonic() - self._stats_at < HEARTBEAT_S:
            return
        self._stats_at = time.monotonic()
        running = len(self._running)
        stats = Stats(
            progress=self.ticks,
            rows_open=running + len(self._queued),
            rows_running=sum(not row.parked for row in self._running.values()),
            rows_queued=len(self._queued),
            rows_parked=sum(bool(row.parked) for row in self._running.values()),
            blocks_used=0,
            blocks_total=0,
            codec_slots_used=running,
            codec_slots_total=self.script.model.capacity_rows,
            frames_total=self._frames_total,
            step_ms=1000 * self.script.step_s,
            chunk_ms=0.0,
        )
        self._publish(stats)


def script_from_json(fields: dict[str, Any]) -> FakeScript:
    """Rebuild a script from `dataclasses.asdict` that went through JSON."""
    model = dict(fields["model"])
    model["sampling_defaults"] = Sampling(**model["sampling_defaults"])
    ramp_frames = tuple(fields["chunk_ramp_frames"])
    return FakeScript(**fields | {"model": ModelInfo(**model), "chunk_ramp_frames": ramp_frames})
