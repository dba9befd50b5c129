"""Device state of sampling: settings, seeds and recently drawn codes of every slot."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.api import Sampling
from engine.models.depth import Choose
from kernels.philox import uniform
from kernels.sampling import SamplingParams, sample

NEVER = -1


class Sampler:
    """Batched draws. A draw depends on its slot's logits, history, seed and frame, and on no other.

    `last_drawn` i32 [slots, n_vq, vocabulary] holds the frame of the segment in which a code was
    last drawn: a code is in the penalty window if that frame is, whatever the window's length.
    """

    def __init__(
        self, slots: int, n_vq: int, vocabulary: int, end_code: int, device: torch.device
    ) -> None:
        self.settings = torch.ones(slots, 5, device=device)
        self.seeds = torch.zeros(slots, dtype=torch.int64, device=device)
        self.last_drawn = torch.full(
            (slots, n_vq, vocabulary), NEVER, dtype=torch.int32, device=device
        )
        self.codebooks = torch.arange(n_vq, device=device)
        self.ends = torch.arange(vocabulary, device=device) == end_code
        self.max_top_k: int | None = None  # bound over the open slots; None when one has none
        self._top_k: dict[int, int] = {}

    def open(self, slot: int, sampling: Sampling, seed: int) -> None:
        """Give a slot its settings, the bits of a u64 seed, and an empty history."""
        self.settings[slot] = torch.tensor(
            [
                sampling.temperature,
                sampling.top_p,
                sampling.top_k,
                sampling.repetition_penalty,
                sampling.repetition_window,
            ]
        )
        self.seeds[slot] = seed - (1 << 64) if seed >> 63 else seed
        self._top_k[slot] = sampling.top_k
        self._bound_top_k()
        self.forget(slot)

    def close(self, slot: int) -> None:
        """The slot is free."""
        del self._top_k[slot]
        self._bound_top_k()

    @property
    def open_slots(self) -> int:
        """Slots that a row holds."""
        return len(self._top_k)

    def forget(self, slot: int) -> None:
        """Empty the penalty history, as at the start of a segment."""
        self.last_drawn[slot] = NEVER

    def draw(self, slots: Tensor, frames: Tensor, segment_frames: Tensor) -> Choose:
        """Prepare the draws of one frame for slots i64 [N].

        `frames` i64 [N] count through the response (random keys), `segment_frames` through the
        segment (penalty window).
        """
        temperature, top_p, top_k, penalty, window = self.settings[slots].unbind(1)
        oldest = torch.where(window > 0, segment_frames - window, 0).clamp(min=0)
        recent = self.last_drawn[slots] >= oldest[:, None, None]
        # A segment has text, so it has sound: the end cannot be its first code.
        too_early = (segment_frames == 0)[:, None] & self.ends
        seeds = self.seeds[slots]
        u = uniform(seeds[:, None], frames[:, None], self.codebooks)
        params = SamplingParams(temperature, top_p, top_k.long(), penalty)

        def choose(codebook: int, logits: Tensor) -> Tensor:
            if codebook == 0:
                logits = logits.masked_fill(too_early, float("-inf"))
            return sample(logits, recent[:, codebook], params, u[:, codebook], self.max_top_k)

        return choose

    def record(self, slots: Tensor, codes: Tensor, segment_frames: Tensor) -> None:
        """Remember codes [N, n_vq] as drawn in these frames of their segments."""
        _, n_vq, vocabulary = self.last_drawn.shape
        places = (slots[:, None] * n_vq + self.codebooks) * vocabulary + codes
        frames = segment_frames.to(torch.int32)[:, None].expand_as(codes)
        self.last_drawn.view(-1).index_copy_(0, places.view(-1), frames.reshape(-1))

    def recall(self, slot: int, codes: Tensor) -> None:
        """Remember codes i64 [m, n_vq] as those of the segment's first m frames."""
        history = self.last_drawn[slot]
        frames = torch.arange(len(codes), dtype=torch.int32, device=codes.device)
        history.scatter_reduce_(1, codes.T, frames.expand(len(history), -1), "amax")

    def _bound_top_k(self) -> None:
        values = self._top_k.values()
        self.max_top_k = max(values, default=None) if 0 not in values else None
