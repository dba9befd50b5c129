"""One row: a response being spoken. Host state only; tensors live in the engine's slots."""

from __future__ import annotations

import enum
import time

import numpy as np
from numpy.typing import NDArray

from engine.api import Counts, I32Grid, Open, ParkReason, SegmentReason, U16Codes
from engine.models.interface import Layout


class State(enum.Enum):
    """QUEUED -> PREFILLING -> SPEAKING <-> PARKED_TEXT | PARKED_FLOW -> FINISHING -> DONE."""

    QUEUED = "queued"
    PREFILLING = "prefilling"
    SPEAKING = "speaking"
    PARKED_TEXT = "parked_text"
    PARKED_FLOW = "parked_flow"
    FINISHING = "finishing"
    DONE = "done"


PARK_REASONS: dict[State, ParkReason] = {State.PARKED_TEXT: "text", State.PARKED_FLOW: "flow"}


class Row:
    """What is known of a row: its context, its text, its frames, and how far the listener is."""

    def __init__(self, opened: Open, layout: Layout) -> None:
        self.id = opened.row
        self.opened = opened
        self.layout = layout
        self.n_vq = opened.n_vq or layout.columns - 1  # codebooks of its frames
        self.text = layout.new_text()
        self.state = State.QUEUED
        self.slot = 0
        self.pending: I32Grid = opened.grid  # grid rows to prefill
        self.grid: list[I32Grid] = []  # grid rows in the KV cache, in pieces
        self.position = 0  # how many those are
        self.block_keys: list[bytes] = []  # blocks this row refers to
        self.wants_draw = False  # a hidden state waits, from which the next frame is drawn
        self.codes: NDArray[np.int64] = np.zeros(0, np.int64)  # of the last frame
        self.frames = opened.segment_frame
        self.segment_first_frame = opened.segment_frame
        self.heard_samples = 0
        self.segment_reason: SegmentReason = "eos"
        self.stop_reason = ""  # why the response ends before its text
        self.reused_rows = 0
        self.prefilled_rows = 0
        self.prefilled_to = 0  # position up to which no step has appended anything
        self.steps = 0
        self.queue_ms = 0.0
        self._parked_ms: dict[ParkReason, float] = {"text": 0.0, "flow": 0.0}
        self._since_ns = time.monotonic_ns()

    @property
    def segment_frames(self) -> int:
        """Frames of the current segment so far."""
        return self.frames - self.segment_first_frame

    @property
    def new_frames(self) -> int:
        """Frames since the segments that were in the grid when the row opened."""
        return self.frames - self.opened.segment_frame

    @property
    def is_replaying(self) -> bool:
        """The next frame is one that the listener has already."""
        return self.frames < len(self.opened.generated)

    def made_chunks(self) -> list[U16Codes]:
        """The frames that the listener has already, as they came."""
        ends = np.cumsum(self.opened.chunk_frames, dtype=np.int64)
        return [chunk for chunk in np.split(self.opened.generated, ends) if len(chunk)]

    def replay(self, frames: int) -> None:
        """The next `frames` frames are those that were made before."""
        self.frames += frames
        self.codes = self.opened.generated[self.frames - 1].astype(np.int64)

    def take_back_steps(self) -> I32Grid:
        """Forget the grid rows that steps have appended, and return them."""
        grid = np.concatenate(self.grid)
        self.grid, self.position = [grid[: self.prefilled_to]], self.prefilled_to
        return grid[self.prefilled_to :]

    def enter(self, state: State) -> None:
        """Change state, and count the time spent in the one that is left."""
        now_ns = time.monotonic_ns()
        spent_ms = (now_ns - self._since_ns) / 1e6
        if self.state is State.QUEUED:
            self.queue_ms = spent_ms
        elif self.state in PARK_REASONS:
            self._parked_ms[PARK_REASONS[self.state]] += spent_ms
        self.state, self._since_ns = state, now_ns

    def advance(self, rows: I32Grid) -> None:
        """These grid rows are in the KV cache now."""
        self.grid.append(rows)
        self.position += len(rows)

    def next_grid_row(self) -> I32Grid:
        """The grid row [1, 1 + n_vq] of the next step: a text id beside the last frame."""
        self.steps += 1
        row = np.empty((1, self.layout.columns), np.int32)
        row[0, 0] = self.text.take_id()
        row[0, 1:] = self.codes
        return row

    def begin_segment(self) -> None:
        """The penalty history and the segment's frame count start over."""
        self.segment_first_frame = self.frames

    def counts(self) -> Counts:
        """What the row has cost."""
        return Counts(
            queue_ms=self.queue_ms,
            prefill_grid_rows=self.prefilled_rows,
            reused_grid_rows=self.reused_rows,
            steps=self.steps,
            frames=self.frames,
            starved_ms=self._parked_ms["text"],
            flow_paused_ms=self._parked_ms["flow"],
            text_ids=self.text.total_consumed,
        )
