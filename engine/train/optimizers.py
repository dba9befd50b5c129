"""Muon for hidden matrices, AdamW for the rest, one schedule; and which dtype is fastest here."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

WARM_UP_STEPS = 100
FLOOR = 0.02
ORTHOGONAL_STEPS = 4  # of Newton and Schulz, in Muon: a fifth changes nothing and costs time


class Optimizers:
    """Both optimizers as one. `share` of the work (0..1) decides the learning rate."""

    def __init__(
        self, matrices: list[Tensor], others: list[Tensor], rate: float, decay_from: float
    ) -> None:
        self._rate, self._decay_from = rate, decay_from
        self._steps = 0
        self._all: list[torch.optim.Optimizer] = [
            torch.optim.Muon(
                matrices,
                lr=rate,
                weight_decay=0.01,
                ns_steps=ORTHOGONAL_STEPS,
                adjust_lr_fn="match_rms_adamw",
            ),
            torch.optim.AdamW(others, lr=rate, betas=(0.9, 0.98), weight_decay=0.0, fused=True),
        ]
        self._parameters = matrices + others

    def step(self, share: float, max_norm: float) -> float:
        """Clip, apply and clear the gradients. Returns their norm before clipping."""
        norm = torch.nn.utils.clip_grad_norm_(self._parameters, max_norm).item()
        rate = self._rate * min(1.0, (self._steps + 1) / WARM_UP_STEPS)
        if share > self._decay_from:
            rate *= max(FLOOR, (1 - share) / (1 - self._decay_from))
        for optimizer in self._all:
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
        self.forget_gradients()
        self._steps += 1
        return norm

    def forget_gradients(self) -> None:
        """Clear what was added up since the last step."""
        for optimizer in self._all:
            optimizer.zero_grad(set_to_none=True)

    def state_dict(self) -> dict[str, Any]:
        """State of both, to be saved."""
        return {"steps": self._steps, "all": [optimizer.state_dict() for optimizer in self._all]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state_dict`."""
        self._steps = state["steps"]
        for optimizer, saved in zip(self._all, state["all"], strict=True):
            optimizer.load_state_dict(saved)


def fastest_dtype(
    step: Callable[[torch.dtype], object], dtypes: Iterable[torch.dtype] | None = None
) -> torch.dtype:
    """Try `step` in each dtype and return the faster one's.

    bfloat16 is twice as fast as float32 where the CPU has AVX512-BF16 or AMX, else many times
    slower: only trying tells.
    """
    spent = {}
    for dtype in dtypes or (torch.bfloat16, torch.float32):
        step(dtype)
        start = time.perf_counter()
        step(dtype)
        spent[dtype] = time.perf_counter() - start
    return min(spent, key=lambda dtype: spent[dtype])
