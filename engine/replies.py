"""Replies to a whole prompt: the text is in the grid when the row opens, and nothing is fed."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from engine.api import I32Grid, SegmentReason


@dataclasses.dataclass(frozen=True, slots=True)
class Drawn:
    """What one draw means for a row."""

    frame: NDArray[np.int64] | None  # codes [n_vq]; None where the draw completes no frame
    ends: bool = False  # the model has ended what it was saying; there is no frame then
    cuts: bool = False  # the next frame's sound does not go on from the frames before it


@dataclasses.dataclass(frozen=True, slots=True)
class GridShape:
    """Width and ranges of a model's grids."""

    columns: int
    text_vocabulary: int
    audio_vocabulary: int

    @property
    def least_n_vq(self) -> int:
        """Fewest codebooks that the model can speak with."""
        return self.columns - 1

    def problem_with(self, grid: I32Grid) -> str | None:
        """What makes a grid unfit for the model, if anything does."""
        if grid.ndim != 2 or grid.shape[1] != self.columns:
            return f"a grid has {self.columns} columns; this one is {list(grid.shape)}"
        for name, part, size in (
            ("text id", grid[:, 0], self.text_vocabulary),
            ("code", grid[:, 1:], self.audio_vocabulary),
        ):
            if part.size and not 0 <= part.min() <= part.max() < size:
                return f"{name}s are 0..{size - 1}; the grid has {part.min()}..{part.max()}"
        return None


class PromptText:
    """Stands where a row whose text is fed has its `Segments`: one segment, known from the start.

    What is fed, flushed or ended all the same is ignored.
    """

    index = 0
    consumed = 0
    total_consumed = 0
    is_empty = False

    def __init__(self) -> None:
        self._over = False

    def feed(self, ids: tuple[int, ...]) -> None:
        """Nothing is fed."""

    def flush(self, next_prefix: I32Grid) -> None:
        """Nothing is fed."""

    def end(self) -> None:
        """The text ended where the prompt does."""

    def opening_rows(self) -> None:
        """The text is in the prompt."""

    @property
    def is_speaking(self) -> bool:
        """The reply is not over."""
        return not self._over

    @property
    def can_step(self) -> bool:
        """A step waits for no text."""
        return not self._over

    @property
    def is_finished(self) -> bool:
        """The reply is over."""
        return self._over

    def close(self) -> SegmentReason:
        """The model has ended the reply."""
        self._over = True
        return "eos"

    def stop(self) -> None:
        """Speak nothing more."""
        self._over = True

    def advance(self) -> bool:
        """There is no other segment."""
        return False

    def over_budget(self, frames: int, frame_ms: float) -> bool:
        """A prompt has no budget for each text id; the caller's `max_frames` is the limit."""
        return False


@dataclasses.dataclass(frozen=True, slots=True)
class PromptLayout(GridShape):
    """How a model takes a whole prompt."""

    prefill_ids: int = 1  # grid rows that a reply needs beyond its prompt, at least

    can_go_on = False

    @property
    def frame_codes(self) -> int:
        """Codes of a frame are below this: the last one of the vocabulary says "no sound here"."""
        return self.audio_vocabulary - 1

    def cannot_open(self, grid: I32Grid, n_vq: int) -> str | None:
        """What makes a grid that fits no prompt of a reply, if anything does."""
        return None if len(grid) else "the prompt is empty"

    def new_text(self) -> PromptText:
        """The text of a row that opens."""
        return PromptText()
