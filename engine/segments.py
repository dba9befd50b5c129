"""The text of a response, segment by segment: which ids may enter the grid, and when it is over."""

from __future__ import annotations

import dataclasses
from collections import deque

import numpy as np
from numpy.typing import NDArray

from engine.api import I32Grid, SegmentReason, U16Codes
from engine.guard import over_budget
from engine.replies import Drawn, GridShape


@dataclasses.dataclass(frozen=True, slots=True)
class TextLayout(GridShape):
    """How a model takes text: up to `prefill_ids` ids at once, then one beside each frame."""

    prefill_ids: int
    pad_id: int
    audio_pad: int
    audio_bos: int
    audio_eos: int

    can_go_on = True

    @property
    def frame_codes(self) -> int:
        """Codes of a frame are below this: those without sound are part of a dialogue too."""
        return self.audio_vocabulary

    def cannot_open(self, grid: I32Grid, n_vq: int) -> str | None:
        """Text may follow any context that fits the model."""
        return None

    def new_text(self) -> Segments:
        """The text of a row that opens."""
        return Segments(self)

    def drawn(self, codes: NDArray[np.int64]) -> Drawn:
        """What the model drew for one row: codes [n_vq]."""
        ends = bool(codes[0] == self.audio_eos)
        return Drawn(None if ends else codes, ends)


@dataclasses.dataclass(slots=True)
class _Segment:
    prefix: I32Grid  # grid rows between the previous segment and this one's text
    ids: list[int] = dataclasses.field(default_factory=list)
    closed: bool = False  # no more ids will come


class Segments:
    """Ids arrive in order; `flush` ends a segment, `end` the text. One segment is spoken at a time.

    A segment that the model ended before its text was flushed is *over* but not closed: whatever is
    still fed belongs to it and is dropped, until the flush (or the end) closes it.
    """

    def __init__(self, layout: TextLayout) -> None:
        self.layout = layout
        self.index = 0
        self.consumed = 0  # ids of the current segment that are in the grid
        self.consumed_before = 0  # ids of earlier segments that are in the grid
        self.ended = False
        self._started = False
        self._over = False
        self._made: U16Codes = np.zeros((0, layout.columns - 1), np.uint16)
        self._segments = deque([_Segment(prefix=np.zeros((0, layout.columns), np.int32))])

    def go_on_after(self, made: U16Codes) -> None:
        """The first segment has the frames `made` [m, n_vq] already, before its ids are fed again.

        All but the last enter the grid with its first ids; the next step feeds the last one.
        """
        self._made = made[:-1]

    def feed(self, ids: tuple[int, ...]) -> None:
        """Ids of the segment that is being written."""
        if not (self._over and len(self._segments) == 1):
            self._segments[-1].ids.extend(ids)

    def flush(self, next_prefix: I32Grid) -> None:
        """Close the segment that is being written; ids that follow open another."""
        if not self.ended:
            self._segments[-1].closed = True
            self._segments.append(_Segment(prefix=next_prefix))

    def end(self) -> None:
        """Close the text."""
        self.ended = True
        self._segments[-1].closed = True

    def opening_rows(self) -> I32Grid | None:
        """Prefix and first ids of the current segment, once enough are known; each only once.

        The row of the last of these ids carries the begin-of-audio code: its hidden state gives the
        first frame.
        """
        segment, layout, made = self._segments[0], self.layout, self._made
        most = layout.prefill_ids + len(made)
        enough = len(segment.ids) >= most or (segment.closed and segment.ids)
        if self._started or self._over or not enough:
            return None
        first = len(segment.ids[: layout.prefill_ids])
        rows = np.full((first + len(made), layout.columns), layout.audio_pad, np.int32)
        ids = segment.ids[: len(rows)]
        rows[:, 0] = ids + [layout.pad_id] * (len(rows) - len(ids))
        rows[first - 1, 1] = layout.audio_bos
        rows[first:, 1:] = made
        self.consumed, self._made = len(ids), made[:0]
        self._started = True
        return np.concatenate([segment.prefix, rows])

    @property
    def is_speaking(self) -> bool:
        """The current segment's first ids are in the grid, and it is not over."""
        return self._started and not self._over

    @property
    def can_step(self) -> bool:
        """An id, or the padding after the text, can go beside the next frame."""
        segment = self._segments[0]
        return self.is_speaking and (self.consumed < len(segment.ids) or segment.closed)

    def take_id(self) -> int:
        """The id that goes beside the next frame."""
        ids = self._segments[0].ids
        if self.consumed == len(ids):
            return self.layout.pad_id
        self.consumed += 1
        return ids[self.consumed - 1]

    @property
    def is_empty(self) -> bool:
        """The current segment was closed without any text."""
        segment = self._segments[0]
        return segment.closed and not segment.ids and not self._over

    def close(self) -> SegmentReason:
        """The model has ended the current segment, or it is empty; ids not consumed are dropped."""
        spoken = bool(self._segments[0].ids)
        self._over = True
        return "eos" if spoken else "flush"

    def stop(self) -> None:
        """Speak nothing more."""
        self._segments = deque([self._segments[0]])
        self._over = self.ended = True

    def advance(self) -> bool:
        """Go on to the next segment if the current one is over and the next may begin."""
        if not (self._over and len(self._segments) > 1):
            return False
        self._segments.popleft()
        self.consumed_before += self.consumed
        self.index, self.consumed = self.index + 1, 0
        self._started = self._over = False
        return True

    @property
    def is_finished(self) -> bool:
        """Everything was spoken and nothing will follow."""
        last = len(self._segments) == 1
        return self.ended and last and (self._over or self.is_empty)

    @property
    def total_consumed(self) -> int:
        """Ids of the response that are in the grid."""
        return self.consumed_before + self.consumed

    def over_budget(self, frames: int, frame_ms: float) -> bool:
        """Whether so many frames of sound are more than the text can be worth."""
        return over_budget(frames, self.total_consumed, frame_ms)
