"""Run MOSS-TTS-Local-Transformer or MOSS-TTS-Nano for many rows at once: prefill, step, draw."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.api import I32Grid, Open, Sampling, TextSampling
from engine.models.depth import Choose
from engine.models.global_local import Decide, GlobalLocalModel
from engine.models.runner import BatchRunner
from engine.row import Row
from engine.sampler import Sampler
from kernels.philox import uniform


class FrameSampler(Sampler):
    """Draws codes as `Sampler` does, and before them whether there is a frame at all.

    That decision has a random number of its own, at the place after the last codebook, and a
    temperature of its own.
    """

    def __init__(self, slots: int, n_vq: int, codebook_size: int, device: torch.device) -> None:
        super().__init__(slots, n_vq, codebook_size, end_code=-1, device=device)
        self.decision_temperature = torch.ones(slots, device=device)

    def draw_frame(
        self, slots: Tensor, frames: Tensor, segment_frames: Tensor
    ) -> tuple[Decide, Choose]:
        """Prepare one frame for slots i64 [N]; arguments as for `draw`."""
        temperature = self.decision_temperature[slots]
        is_greedy = temperature == 0
        u = uniform(self.seeds[slots], frames, self.codebooks.new_full((), len(self.codebooks)))
        # A segment has text, so it has sound.
        is_first = segment_frames == 0

        def decide(logits: Tensor) -> Tensor:
            greedy = logits[:, 0] >= logits[:, 1]
            scaled = logits / torch.where(is_greedy, 1.0, temperature)[:, None]
            return is_first | torch.where(is_greedy, greedy, u < scaled.softmax(1)[:, 0])

        return decide, self.draw(slots, frames, segment_frames)


class GlobalLocalRunner(BatchRunner):
    """A model, the working set of its keys and values, and the sampling state of its slots.

    A row's frames are its grid rows: the "frame follows" id beside the codes. The frame in which a
    row stops is all `audio_pad`; it is no frame and never enters the grid.
    """

    def __init__(
        self, model: GlobalLocalModel, slots: int, max_grid_rows: int, *, deterministic: bool
    ):
        config = model.config
        like = model.text_embedding.weight
        self.sampler = FrameSampler(slots, config.n_vq, config.codebook_size, like.device)
        self.codebooks_used = torch.full((slots,), config.n_vq, device=like.device)
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

    def open(
        self,
        slot: int,
        sampling: Sampling,
        seed: int,
        n_vq: int | None = None,
        text_sampling: TextSampling | None = None,
    ) -> None:
        """A row takes the slot; it speaks the first `n_vq` codebooks (None: all of them).

        Of `text_sampling` only the temperature matters to a decision between two; None is 1, and
        greedy where the codes are. Raises `ValueError` if the model has fewer codebooks.
        """
        most = self.model.config.n_vq
        if n_vq is not None and not 1 <= n_vq <= most:
            raise ValueError(f"n_vq is 1..{most} for this model; got {n_vq}")
        super().open(slot, sampling, seed)
        self.codebooks_used[slot] = n_vq or most
        decision = float(sampling.temperature > 0)
        self.sampler.decision_temperature[slot] = (
            text_sampling.temperature if text_sampling else decision
        )

    def open_row(self, slot: int, opened: Open) -> None:
        """A row takes the slot, with the settings of its command."""
        self.open(slot, opened.sampling, opened.seed, opened.n_vq, opened.text_sampling)

    def next_grid_row(self, row: Row) -> I32Grid:
        """The last frame; the text was in the prompt, whole."""
        row.steps += 1
        return np.concatenate([[self.model.config.continue_id], row.codes]).astype(np.int32)[None]

    @torch.inference_mode()
    def _draw(self, batch: NDArray[np.int64]) -> NDArray[np.int64]:
        slots, frames, segment_frames = self._to_device(batch).unbind(1)
        decide, choose = self.sampler.draw_frame(slots, frames, segment_frames)
        speaks, codes = self.model.depth(self.hidden.index_select(0, slots), decide, choose)
        self.sampler.record(slots, codes, segment_frames)
        unused = self.sampler.codebooks >= self.codebooks_used[slots][:, None]
        return codes.masked_fill(unused | ~speaks[:, None], self.audio_pad).cpu().numpy()
