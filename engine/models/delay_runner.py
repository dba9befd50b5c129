"""Run a delay-pattern model for many rows at once: prefill, step, draw.

The counterpart of `engine.models.runner`. A draw gives a grid row; the frame that it completes,
n_vq - 1 rows after the one in which it began, comes with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from engine.api import I32Grid, Open, Sampling, TextSampling
from engine.cache.working_set import SCRATCH_SLOT, WorkingSet
from engine.models.delay import DelayModel
from engine.models.delay_pattern import Undelay
from engine.models.delay_sampler import DelaySampler
from engine.models.delay_state import DelayState
from engine.models.runner import PREFILL_SIZES
from engine.replies import Drawn


class RunningRow(Protocol):
    """What the runner needs of a row: its slot, how many grid rows the KV cache has, steps."""

    slot: int
    position: int
    steps: int

    def advance(self, rows: I32Grid) -> None:
        """These grid rows are in the KV cache now."""


@dataclass(frozen=True, slots=True)
class DrawnRow(Drawn):
    """The grid row that was drawn, and the frame that it completes."""

    grid_row: NDArray[np.int64] = field(kw_only=True)  # [1 + n_vq], fed by the next step


class DelayRunner:
    """A model, the working set of its keys and values, and the state of its slots."""

    def __init__(
        self,
        model: DelayModel,
        slots: int,
        max_grid_rows: int,
        *,
        deterministic: bool,
        text_sampling: TextSampling | None = None,
    ) -> None:
        table = model.language_model.embed_tokens.weight
        self.model, self.form = model, model.config.form
        self.device, self.dtype = table.device, table.dtype
        self.columns = self.form.columns
        positions = max_grid_rows + PREFILL_SIZES[-1]
        backbone = model.config.backbone
        self.working = WorkingSet(backbone, slots, positions, self.dtype, self.device)
        self.rotations = backbone.rotations(positions, like=table)
        self.hidden = torch.zeros(slots, table.shape[1], dtype=self.dtype, device=self.device)
        self.state = DelayState(slots, self.form, self.device)
        self.sampler = DelaySampler(slots, self.form, self.device)
        self.undelay = Undelay(slots, self.form)
        self.text_sampling = text_sampling or TextSampling()
        self.smallest_batch = 4 if deterministic else 1  # see RealtimeRunner
        self._drawn = np.zeros((slots, self.columns), np.int64)  # grid rows not yet fed
        self._steps = np.zeros(slots, np.int64)

    def open(
        self,
        slot: int,
        sampling: Sampling,
        seed: int,
        grid: I32Grid,
        text_sampling: TextSampling | None = None,
    ) -> None:
        """A row takes the slot. `grid` is the whole prompt, also what of it is prefilled already.

        It is a prompt with which `prompt_problem` finds none.
        """
        self.state.open(slot, grid)
        self.undelay.open(slot, grid)
        self.sampler.open(slot, sampling, text_sampling or self.text_sampling, seed, grid)
        self._steps[slot] = 0

    def open_row(self, slot: int, opened: Open) -> None:
        """A row takes the slot, with the prompt and settings of its command."""
        self.open(slot, opened.sampling, opened.seed, opened.grid, opened.text_sampling)

    def begin_segment(self, slot: int) -> None:
        """A reply to a prompt has one segment."""

    def close(self, slot: int) -> None:
        """The row leaves the slot."""
        self.sampler.close(slot)

    @torch.inference_mode()
    def prefill(self, slot: int, start: int, rows: I32Grid) -> None:
        """Append grid rows i32 [T, columns] at position `start`; T <= the largest prefill size.

        The hidden state of the last one becomes the slot's.
        """
        size = next(size for size in PREFILL_SIZES if size >= len(rows))
        padded = np.full((size, self.columns), self.form.audio_pad, np.int64)
        padded[:, 0] = self.form.pad
        padded[: len(rows)] = rows
        attend = self.working.append_sequence(slot, start, size)
        rotation = self.rotations[start : start + size]
        hidden = self.model.backbone(self._to_device(padded), rotation, attend)
        self.hidden[slot] = hidden[len(rows) - 1]

    def step(self, rows: Sequence[RunningRow]) -> None:
        """Feed each row's drawn grid row; the hidden states become those of their slots."""
        batch = self._batch(len(rows), 2 + self.columns)
        for place, row in enumerate(rows):
            batch[place, 0], batch[place, 1] = row.slot, row.position
            batch[place, 2:] = self._drawn[row.slot]
            row.steps += 1
            row.advance(self._drawn[row.slot][None].astype(np.int32))
        self._step(batch)

    def draw(self, rows: Sequence[RunningRow]) -> list[DrawnRow]:
        """Draw the next grid row of each row from its slot's hidden state."""
        slots = np.array([row.slot for row in rows])
        batch = self._batch(len(rows), 3)
        batch[: len(rows), 0], batch[: len(rows), 1] = slots, self._steps[slots]
        batch[: len(rows), 2] = [row.position for row in rows]
        drawn = self._draw(batch)[: len(rows)]
        self._drawn[slots] = drawn
        self._steps[slots] += 1
        frames = self.undelay.push(slots, drawn[:, 1:])
        form = self.form
        return [
            DrawnRow(
                frame,
                ends=bool(grid_row[0] == form.im_end),
                cuts=bool(grid_row[0] == form.audio_end),
                grid_row=grid_row,
            )
            for grid_row, frame in zip(drawn, frames, strict=True)
        ]

    def warm_up(self, max_rows: int) -> None:
        """Run every batch and prefill size, in the scratch slot."""
        for size in PREFILL_SIZES:
            self.prefill(SCRATCH_SLOT, 0, np.zeros((size, self.columns), np.int32))
        rows = 1
        while rows <= max_rows:
            self._step(self._batch(rows, 2 + self.columns))
            self._draw(self._batch(rows, 3))
            rows *= 2

    @torch.inference_mode()
    def _step(self, batch: NDArray[np.int64]) -> None:
        """`batch` [N, 2 + columns]: slot, position, grid row."""
        used = range(int(batch[:, 0].min()), int(batch[:, 0].max()) + 1)
        on_device = self._to_device(batch)
        slots, positions = on_device[:, 0], on_device[:, 1]
        attend = self.working.append_rows(slots, positions, used, int(batch[:, 1].max()) + 1)
        hidden = self.model.backbone(on_device[:, 2:], self.rotations[positions], attend)
        self.hidden.index_copy_(0, slots, hidden)

    @torch.inference_mode()
    def _draw(self, batch: NDArray[np.int64]) -> NDArray[np.int64]:
        """`batch` [N, 3]: slot, step of the reply, position. Returns grid rows [N, columns]."""
        slots, steps, positions = self._to_device(batch).unbind(1)
        logits = self.model.logits(self.hidden.index_select(0, slots))
        rules = self.state.constraints(slots)
        drawn = self.sampler.draw(slots, steps, positions, logits, rules)
        self.state.advance(slots, drawn[:, 0])
        return drawn.cpu().numpy()

    def _batch(self, rows: int, columns: int) -> NDArray[np.int64]:
        """Zeros of the next batch size: padding rows are at position 0 of the scratch slot."""
        size = max(self.smallest_batch, 1 << (rows - 1).bit_length())
        return np.zeros((size, columns), np.int64)

    def _to_device(self, array: NDArray[np.int64]) -> torch.Tensor:
        return torch.from_numpy(array).to(self.device)
