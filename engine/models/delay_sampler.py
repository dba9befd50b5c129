"""Draw whole grid rows of delay-pattern replies: a text id and the codes that are due.

A draw depends on its slot's logits, history, seed and step, and on no other: upstream's repetition
penalty takes what any row of the batch has said for repeated, and it has no seed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.api import Sampling, TextSampling
from engine.models.delay_pattern import DelayFormat
from engine.models.delay_state import Constraints
from kernels.philox import uniform
from kernels.sampling import SamplingParams, sample

_NEVER = -1


class DelaySampler:
    """Device state of sampling, by slot.

    `last_seen` i32 [slots, 2, codes + 1] is the grid row in which a code last stood, in the prompt
    or the reply: first for codebook 0, then for all other codebooks together, as the models'
    recommended penalties were tuned.
    """

    def __init__(self, slots: int, form: DelayFormat, device: torch.device) -> None:
        self._form = form
        self._text = _Settings(slots, device)
        self._audio = _Settings(slots, device)
        self._penalties = torch.ones(slots, 2, device=device)  # factor, window in grid rows
        self._seeds = torch.zeros(slots, dtype=torch.int64, device=device)
        shape = (slots, 2, form.audio_pad + 1)
        self.last_seen = torch.full(shape, _NEVER, dtype=torch.int32, device=device)
        self._columns = torch.arange(form.columns, device=device)
        self._groups = (torch.arange(form.n_vq, device=device) > 0).long()

    def open(
        self, slot: int, audio: Sampling, text: TextSampling, seed: int, grid: NDArray[Any]
    ) -> None:
        """Give a slot its settings, the bits of a u64 seed, and the codes of its prompt."""
        self._text.open(slot, text.temperature, text.top_p, text.top_k)
        self._audio.open(slot, audio.temperature, audio.top_p, audio.top_k)
        self._penalties[slot] = torch.tensor(
            [audio.repetition_penalty, float(audio.repetition_window)]
        )
        self._seeds[slot] = seed - (1 << 64) if seed >> 63 else seed
        seen = np.full((2, self._form.audio_pad + 1), _NEVER, np.int32)
        rows = np.arange(len(grid), dtype=np.int32)[:, None]
        np.maximum.at(seen[0], grid[:, 1:2], rows)
        np.maximum.at(seen[1], grid[:, 2:], rows)
        self.last_seen[slot] = torch.from_numpy(seen)

    def close(self, slot: int) -> None:
        """The slot is free."""
        self._text.close(slot)
        self._audio.close(slot)

    @property
    def open_slots(self) -> int:
        """Slots that a row holds."""
        return self._audio.open_slots

    def draw(
        self,
        slots: Tensor,
        steps: Tensor,
        positions: Tensor,
        logits: tuple[Tensor, Tensor],
        rules: Constraints,
    ) -> Tensor:
        """Draw the next grid rows i64 [N, 1 + n_vq] of slots i64 [N], and remember their codes.

        `steps` i64 [N] count the drawn rows of the reply (random keys), `positions` all its grid
        rows (penalty window). `logits` are those of the model: [N, vocabulary], [N, n_vq, codes+1].
        """
        u = uniform(self._seeds[slots][:, None], steps[:, None], self._columns)
        text = self._draw_text(slots, logits[0], u[:, 0], rules)
        codes = self._draw_codes(slots, positions, logits[1], u[:, 1:], rules)
        self._record(slots, positions, codes)
        return torch.cat([text[:, None], codes], dim=1)

    def _draw_text(self, slots: Tensor, logits: Tensor, u: Tensor, rules: Constraints) -> Tensor:
        allowed = logits.masked_fill(rules.banned, float("-inf"))
        params = self._text.params(slots, penalty=torch.ones_like(u))
        none = torch.zeros_like(rules.banned)
        drawn = sample(allowed, none, params, u, self._text.max_top_k, inclusive=True)
        return torch.where(rules.forced < 0, drawn, rules.forced)

    def _draw_codes(
        self, slots: Tensor, positions: Tensor, logits: Tensor, u: Tensor, rules: Constraints
    ) -> Tensor:
        penalty, window = self._penalties[slots].unbind(1)
        oldest = torch.where(window > 0, positions - window, 0).clamp(min=0)
        recent = self.last_seen[slots] >= oldest[:, None, None]
        rows, n_vq, codes = logits.shape
        of_all = slots.repeat_interleave(n_vq)
        drawn = sample(
            logits.view(rows * n_vq, codes),
            recent[:, self._groups].view(rows * n_vq, codes),
            self._audio.params(of_all, penalty=penalty.repeat_interleave(n_vq)),
            u.reshape(-1),
            self._audio.max_top_k,
            inclusive=True,
        ).view(rows, n_vq)
        return torch.where(rules.active, drawn, self._form.audio_pad)

    def _record(self, slots: Tensor, positions: Tensor, codes: Tensor) -> None:
        places = (slots[:, None] * 2 + self._groups) * self.last_seen.shape[2] + codes
        rows = positions.to(torch.int32)[:, None].expand_as(codes)
        self.last_seen.view(-1).index_copy_(0, places.view(-1), rows.reshape(-1))


class _Settings:
    """Temperature, top-p and top-k of each slot."""

    def __init__(self, slots: int, device: torch.device) -> None:
        self._settings = torch.ones(slots, 3, device=device)
        self._top_k: dict[int, int] = {}
        self.max_top_k: int | None = None  # bound over the open slots; None when one has none

    @property
    def open_slots(self) -> int:
        return len(self._top_k)

    def open(self, slot: int, temperature: float, top_p: float, top_k: int) -> None:
        self._settings[slot] = torch.tensor([temperature, top_p, float(top_k)])
        self._top_k[slot] = top_k
        self._bound()

    def close(self, slot: int) -> None:
        del self._top_k[slot]
        self._bound()

    def params(self, slots: Tensor, penalty: Tensor) -> SamplingParams:
        temperature, top_p, top_k = self._settings[slots].unbind(1)
        return SamplingParams(temperature, top_p, top_k.long(), penalty)

    def _bound(self) -> None:
        values = self._top_k.values()
        self.max_top_k = max(values, default=None) if 0 not in values else None
