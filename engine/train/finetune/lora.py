"""Low-rank adapters on every linear layer (peft), merged into plain weights for a checkpoint."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from engine.models.realtime import RealtimeModel


class MissingPackage(RuntimeError):
    """A package of the extra `train` that is not installed."""


def add_adapters(model: RealtimeModel, rank: int) -> None:
    """Freeze a model and give each of its linear layers an adapter, the only thing to be trained.

    Raises `MissingPackage` without peft.
    """
    try:
        with _hidden("kernels"):
            from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise MissingPackage(
            f"--lora needs peft: pip install 'moss-realtime[train]' ({error})"
        ) from error
    linear = [name for name, part in model.named_modules() if isinstance(part, nn.Linear)]
    config = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=linear, lora_dropout=0.0)
    inject_adapter_in_model(config, model)


@contextmanager
def _hidden(package: str) -> Iterator[None]:
    """Let others believe for a while that a package of ours is not there.

    transformers, which peft imports, needs a package that is called `kernels` like ours, and goes
    without it where there is none. It asks once and remembers the answer.
    """
    ours = sys.modules[package]
    sys.modules[package] = None  # type: ignore[assignment]  # makes imports of it fail
    try:
        yield
    finally:
        sys.modules[package] = ours


@torch.no_grad()
def plain_weights(model: RealtimeModel) -> dict[str, Tensor]:
    """The state of a model under its released tensor names, adapters merged. Changes nothing."""
    state = {}
    for name, tensor in model.state_dict().items():
        if ".lora_" not in name:
            state[name.replace(".base_layer.", ".")] = tensor
    for name, part in model.named_modules():
        if hasattr(part, "base_layer"):
            weight = state[f"{name}.weight"]
            state[f"{name}.weight"] = weight.float() + part.get_delta_weight("default").float()
    return state
