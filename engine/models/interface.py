"""What the engine knows of a model: prompt grids go in, frames come out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from engine.api import I32Grid, Open, Sampling, U16Codes
from engine.cache.working_set import WorkingSet
from engine.models.gpt2 import GPT2Config
from engine.models.qwen3 import StackConfig
from engine.models.variants import Variant
from engine.replies import Drawn


class Runner(Protocol):
    """Runs a model for many rows at once, each in a slot of its own."""

    working: WorkingSet
    dtype: torch.dtype

    def open_row(self, slot: int, opened: Open) -> None:
        """A row takes the slot."""

    def close(self, slot: int) -> None:
        """The row leaves the slot."""

    def begin_segment(self, slot: int) -> None:
        """The row goes on to the next segment of its text."""

    def recall(self, slot: int, codes: U16Codes) -> None:
        """These are the segment's first frames, drawn before the row took the slot."""

    def prefill(self, slot: int, start: int, rows: I32Grid) -> None:
        """Append grid rows at position `start`."""

    def step(self, rows: Sequence[Any]) -> None:
        """Feed each row's next grid row."""

    def draw(self, rows: Sequence[Any]) -> Any:
        """Draw what follows for each row; the layout's `drawn` says what it means."""

    def warm_up(self, max_rows: int) -> None:
        """Run every shape once."""


class Layout(Protocol):
    """What the engine's rows need to know of a model, without a tensor."""

    columns: int
    prefill_ids: int
    text_vocabulary: int

    @property
    def can_go_on(self) -> bool:
        """Whether a row may begin with frames that were made before."""

    @property
    def least_n_vq(self) -> int:
        """Fewest codebooks that the model can speak with."""

    @property
    def frame_codes(self) -> int:
        """Codes of a frame are below this."""

    def problem_with(self, grid: I32Grid) -> str | None:
        """What makes a grid unfit for the model, if anything does."""

    def cannot_open(self, grid: I32Grid, n_vq: int) -> str | None:
        """What makes a fitting grid no prompt of frames of `n_vq` codes, if anything does."""

    def new_text(self) -> Any:
        """The text of a row that opens."""

    def drawn(self, value: Any) -> Drawn:
        """What the runner drew for one row."""


@dataclasses.dataclass(frozen=True, slots=True)
class Loaded:
    """A model in memory, whatever its family."""

    variant: Variant
    n_vq: int
    codebook_size: int
    backbone: StackConfig | GPT2Config
    layout: Layout
    sampling_defaults: Sampling
    new_runner: Callable[[int, int, bool], Runner]
    """(slots, longest context in grid rows, deterministic) -> the runner."""
