"""Run a delay-pattern model for many rows at once: prefill, step, draw.

A draw gives a grid row; the frame that it completes,
n_vq - 1 rows after the one in which it began, comes with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from engine.api import I32Grid, Open, Sampling, TextSampling
from engine.models.delay import DelayModel
from engine.models.delay_pattern import Undelay
from engine.models.delay_sampler import DelaySampler
from engine.models.delay_state import DelayState
from engine.models.runner import BatchRunner
from engine.replies import Drawn
from engine.row import Row


@dataclass(frozen=True, slots=True)
class DrawnRow(Drawn):
    """The grid row that was drawn, and the frame that it completes."""

    grid_row: NDArray[np.int64] = field(kw_only=True)  # [1 + n_vq], fed by the next step


class DelayRunner(BatchRunner):
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
        like = model.language_model.embed_tokens.weight
        self.form = model.config.form
        super().__init__(
            model,
            like,
            model.config.backbone,
            slots,
            max_grid_rows,
            columns=self.form.columns,
            audio_pad=self.form.audio_pad,
            deterministic=deterministic,
        )
        self.state = DelayState(slots, self.form, self.device)
        self.sampler = DelaySampler(slots, self.form, self.device)
        self.undelay = Undelay(slots, self.form)
        self.text_sampling = text_sampling or TextSampling()
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

    def next_grid_row(self, row: Row) -> I32Grid:
        """The row that was drawn."""
        row.steps += 1
        return self._drawn[row.slot][None].astype(np.int32)

    def draw(self, rows: Sequence[Row]) -> list[DrawnRow]:
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

    @torch.inference_mode()
    def _draw(self, batch: NDArray[np.int64]) -> NDArray[np.int64]:
        """`batch` [N, 3]: slot, step of the reply, position. Returns grid rows [N, columns]."""
        slots, steps, positions = self._to_device(batch).unbind(1)
        logits = self.model.logits(self.hidden.index_select(0, slots))
        rules = self.state.constraints(slots)
        drawn = self.sampler.draw(slots, steps, positions, logits, rules)
        self.state.advance(slots, drawn[:, 0])
        return drawn.cpu().numpy()
