"""A model, its optimizer and one update."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from engine.models.realtime import RealtimeModel
from engine.train.objective import code_logits, code_losses, hidden_states
from engine.train.packing import IGNORE, Batch

MAX_NORM = 1.0
WARM_UP_SHARE = 0.1


class Learner:
    """Updates every parameter that has a gradient."""

    def __init__(self, model: RealtimeModel, rate: float, dtype: torch.dtype) -> None:
        """`dtype` bfloat16 computes under autocast; the parameters keep theirs."""
        self.model, self.dtype = model, dtype
        self._rate = rate
        self._weights = {n: p for n, p in model.named_parameters() if p.requires_grad}
        self._optimizer = torch.optim.AdamW(
            self._weights.values(), lr=rate, betas=(0.9, 0.98), weight_decay=0.0
        )

    def update(self, batches: Sequence[Batch], share: float) -> tuple[Tensor, Tensor]:
        """Learn from all of `batches` at once; `share` of the run (0..1) decides the rate.

        Returns the mean loss of their codes and the norm of the gradient before clipping.
        """
        count = sum(_labelled(batch) for batch in batches)
        total = self.gradients(batches[0], count)
        for batch in batches[1:]:
            total = total + self.gradients(batch, count)
        norm = nn.utils.clip_grad_norm_(self._weights.values(), MAX_NORM)
        for group in self._optimizer.param_groups:
            group["lr"] = self._rate * scheduled(share)
        self._optimizer.step()
        self.forget_gradients()
        return total, norm

    def gradients(self, batch: Batch, count: int) -> Tensor:
        """Add a batch's gradient of its summed loss / `count`; return that."""
        loss = self._summed(batch) / count
        loss.backward()
        return loss.detach()

    def forget_gradients(self) -> None:
        self._optimizer.zero_grad(set_to_none=True)

    @torch.no_grad()
    def loss(self, batches: Sequence[Batch]) -> float:
        """Mean loss of the codes of `batches`, in nats."""
        summed = sum(float(self._summed(batch)) for batch in batches)
        return summed / sum(_labelled(batch) for batch in batches)

    def _summed(self, batch: Batch) -> Tensor:
        device = self.model.embed_tokens[0].weight.device
        frames = (batch.labels != IGNORE).any(1).nonzero().flatten()
        labels = batch.labels[frames].to(device)
        with self._precision(device):
            embedded = self.model.embed(batch.grid.to(device))
            hidden = hidden_states(self.model, embedded, batch.lengths)[frames.to(device)]
            return code_losses(code_logits(self.model, hidden, labels), labels).sum()

    def _precision(self, device: torch.device) -> AbstractContextManager[Any]:
        if self.dtype == torch.float32:
            return nullcontext()
        return torch.autocast(device.type, self.dtype)

    def state_dict(self) -> dict[str, Any]:
        """What a killed run needs to go on."""
        weights = {name: weight.detach() for name, weight in self._weights.items()}
        return {"weights": weights, "optimizer": self._optimizer.state_dict()}

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state_dict`."""
        for name, weight in self._weights.items():
            weight.copy_(state["weights"][name])
        self._optimizer.load_state_dict(state["optimizer"])


def scheduled(share: float) -> float:
    """Factor of the learning rate: up for the first tenth of a run, then down a cosine to zero."""
    if share < WARM_UP_SHARE:
        return share / WARM_UP_SHARE
    return 0.5 + 0.5 * math.cos(math.pi * (share - WARM_UP_SHARE) / (1 - WARM_UP_SHARE))


def recompute_layers(model: RealtimeModel) -> None:
    """Keep no activations within a layer: they are computed again for the gradient."""
    for stack in (model.language_model, model.local_transformer.model):
        for layer in stack.layers:
            layer.forward = functools.partial(
                checkpoint, layer.forward, use_reentrant=False, preserve_rng_state=False
            )


def _labelled(batch: Batch) -> int:
    return int((batch.labels != IGNORE).sum())
