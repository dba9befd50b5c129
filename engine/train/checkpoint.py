"""Checkpoints in the released format that can be trained, and saved without ever losing one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from engine.checkpoint import read_tensors
from engine.models.realtime import UNUSED_TENSORS, RealtimeModel, read_realtime

_WEIGHTS = "model.safetensors"
_SETTINGS = (
    *("config.json", "generation_config.json", "processor_config.json"),
    *("tokenizer.json", "tokenizer_config.json"),
)


def trainable(
    directory: Path, *, device: str | torch.device = "cpu", dtype: torch.dtype = torch.float32
) -> RealtimeModel:
    """Load a checkpoint for training: every parameter has a gradient, but for the pad rows.

    Raises `CheckpointError` as `load_realtime` does.
    """
    model = read_realtime(directory, device=device, dtype=dtype)
    for table in model.embed_tokens[1:]:
        table.padding_idx = model.config.audio_pad
    return model.requires_grad_(True).train()


def save_checkpoint(
    model: RealtimeModel, directory: Path, *, source: Path, dtype: torch.dtype = torch.bfloat16
) -> None:
    """Write the weights of a model; see `save_weights`."""
    save_weights(model.state_dict(), directory, source=source, dtype=dtype)


def save_weights(
    weights: Mapping[str, Tensor],
    directory: Path,
    *,
    source: Path,
    dtype: torch.dtype = torch.bfloat16,
) -> None:
    """Write a checkpoint in the released format, weights as `dtype`, settings those of `source`.

    A kill or a full disk leaves what was in `directory` before, or nothing where it was new.
    Tensors that released checkpoints hold without using them are copied from `source`, where it
    has weights.
    """
    state = {name: _stored(tensor, dtype) for name, tensor in weights.items()}
    unused = read_tensors(source, UNUSED_TENSORS) if _has_weights(source) else {}
    state |= {name: _stored(tensor, dtype) for name, tensor in unused.items()}
    partial = directory.with_name(f".{directory.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        for name in _SETTINGS:
            if (source / name).is_file():
                shutil.copyfile(source / name, partial / name)
        save_file(state, partial / _WEIGHTS, metadata={"format": "pt"})
        _publish(partial, directory)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _has_weights(directory: Path) -> bool:
    return any(directory.glob(f"{_WEIGHTS}*"))


def _stored(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    return tensor.detach().to("cpu", dtype).contiguous()


def _publish(partial: Path, directory: Path) -> None:
    """Move a complete folder into place; the weights last, for they make it a checkpoint."""
    names = sorted((path.name for path in partial.iterdir()), key=_WEIGHTS.__eq__)
    for name in names:
        _flush(partial / name)
    _flush(partial)
    if not directory.exists():
        partial.rename(directory)
    else:
        for name in names:
            (partial / name).replace(directory / name)
        _flush(directory)
    _flush(directory.parent)


def _flush(path: Path) -> None:
    """Have the disk hold a file, or a folder's names, before anything relies on them."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
