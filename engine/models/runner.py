"""Run a model for many rows at once: prefill, step, draw.

The engine's only view of a model. All rows of a batch share each tensor operation, shapes come in
few sizes, and a frame costs one transfer to the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from engine.api import I32Grid, Open, Sampling, U16Codes
from engine.cache.working_set import SCRATCH_SLOT, WorkingSet
from engine.models.gpt2 import GPT2Config
from engine.models.qwen3 import StackConfig
from engine.models.realtime import RealtimeModel
from engine.row import Row
from engine.sampler import Sampler

PREFILL_SIZES = (16, 32, 64, 128, 256)
"""Grid rows of a prefill call; shorter pieces are padded at their end."""


class BatchRunner:
    """A model, the working set of its keys and values, and the sampling state of its slots.

    `like` has the dtype and device of the model. A subclass sets `sampler`, and draws.
    """

    sampler: Any  # each family draws by rules of its own

    def __init__(
        self,
        model: Any,
        like: torch.Tensor,
        backbone: StackConfig | GPT2Config,
        slots: int,
        max_grid_rows: int,
        *,
        columns: int,
        audio_pad: int,
        deterministic: bool,
    ):
        self.model = model
        self.device, self.dtype = like.device, like.dtype
        self.columns, self.audio_pad = columns, audio_pad
        positions = max_grid_rows + PREFILL_SIZES[-1]
        self.working = WorkingSet(backbone, slots, positions, self.dtype, self.device)
        self.rotations = backbone.rotations(positions, like=like)
        self.hidden = torch.zeros(slots, backbone.hidden_size, dtype=self.dtype, device=self.device)
        # CPU matrix products give a row the same bits in any batch of at least four rows.
        self.steps_run = 0
        self.smallest_batch = 4 if deterministic else 1

    def open(self, slot: int, sampling: Sampling, seed: int) -> None:
        """A row takes the slot."""
        self.sampler.open(slot, sampling, seed)

    def open_row(self, slot: int, opened: Open) -> None:
        """A row takes the slot, with the settings of its command."""
        self.open(slot, opened.sampling, opened.seed)

    def close(self, slot: int) -> None:
        """The row leaves the slot."""
        self.sampler.close(slot)

    def begin_segment(self, slot: int) -> None:
        """The penalty history starts over."""
        self.sampler.forget(slot)

    def recall(self, slot: int, codes: U16Codes) -> None:
        """Fill the penalty history with the segment's first frames u16 [m, n_vq]."""
        self.sampler.recall(slot, torch.from_numpy(codes.astype(np.int64)).to(self.device))

    @torch.inference_mode()
    def prefill(self, slot: int, start: int, rows: I32Grid) -> None:
        """Append grid rows i32 [T, columns] at position `start`; T <= the largest prefill size.

        The hidden state of the last one becomes the slot's.
        """
        size = next(size for size in PREFILL_SIZES if size >= len(rows))
        padded = np.full((size, self.columns), self.audio_pad, np.int64)
        padded[:, 0] = 0
        padded[: len(rows)] = rows
        attend = self.working.append_sequence(slot, start, size)
        rotation = self.rotations[start : start + size]
        hidden = self.model.backbone(self._to_device(padded), rotation, attend)
        self.hidden[slot] = hidden[len(rows) - 1]

    def step(self, rows: Sequence[Row]) -> None:
        """Feed each row's next grid row; the hidden states become those of their slots."""
        batch = self._batch(len(rows), 2 + self.columns)
        for place, row in enumerate(rows):
            batch[place, 0], batch[place, 1] = row.slot, row.position
            grid_row = self.next_grid_row(row)
            batch[place, 2:] = grid_row
            row.advance(grid_row)
        self.steps_run += 1
        self._step(batch)

    def draw(self, rows: Sequence[Row]) -> NDArray[np.int64]:
        """Draw the next frame of each row from its slot's hidden state: codes i64 [N, n_vq]."""
        batch = self._batch(len(rows), 3)
        batch[: len(rows)] = [(row.slot, row.frames, row.segment_frames) for row in rows]
        return self._draw(batch)[: len(rows)]

    def next_grid_row(self, row: Row) -> I32Grid:
        """What a row feeds in its next step, i32 [1, columns]."""
        return row.next_grid_row()

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

    def _draw(self, batch: NDArray[np.int64]) -> NDArray[np.int64]:
        """`batch` [N, 3]: slot, frame of the response, frame of the segment. Codes [N, n_vq]."""
        raise NotImplementedError

    def _batch(self, rows: int, columns: int) -> NDArray[np.int64]:
        """Zeros of the next batch size: padding rows are at position 0 of the scratch slot."""
        size = max(self.smallest_batch, 1 << (rows - 1).bit_length())
        return np.zeros((size, columns), np.int64)

    def _to_device(self, array: NDArray[np.int64]) -> torch.Tensor:
        return torch.from_numpy(array).to(self.device)


class RealtimeRunner(BatchRunner):
    """Runs MOSS-TTS-Realtime."""

    def __init__(
        self, model: RealtimeModel, slots: int, max_grid_rows: int, *, deterministic: bool
    ):
        config = model.config
        like = model.embed_tokens[0].weight
        self.sampler = Sampler(
            slots, config.n_vq, config.audio_vocabulary, config.audio_eos, like.device
        )
        super().__init__(
            model,
            like,
            config.backbone,
            slots,
            max_grid_rows,
            columns=1 + config.n_vq,
            audio_pad=config.audio_pad,
            deterministic=deterministic,
        )

    @torch.inference_mode()
    def _draw(self, batch: NDArray[np.int64]) -> NDArray[np.int64]:
        slots, frames, segment_frames = self._to_device(batch).unbind(1)
        choose = self.sampler.draw(slots, frames, segment_frames)
        codes = self.model.depth(self.hidden.index_select(0, slots), choose)
        self.sampler.record(slots, codes, segment_frames)
        return codes.cpu().numpy()
