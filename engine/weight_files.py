"""One file of weights, safetensors or PyTorch's own: names and shapes, and tensors as asked for."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open

from engine.hub import CheckpointError


class WeightFile(Protocol):
    """The tensors of an open file."""

    def names(self) -> list[str]:
        """What they are called."""

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of one, without reading it."""

    def tensor(self, name: str) -> torch.Tensor:
        """One, as it is stored."""


@contextmanager
def open_weights(path: Path, device: torch.device | str) -> Iterator[WeightFile]:
    """Open a `.safetensors` or `.bin` file. Raises `CheckpointError` if it is no such thing."""
    if path.suffix == ".bin":
        yield _TorchFile(_load(path, device))
        return
    try:
        file = safe_open(path, framework="pt", device=str(device))
    except SafetensorError as error:
        raise CheckpointError(f"{path} is not a readable safetensors file: {error}") from error
    with file:
        yield _SafetensorsFile(file)


class _SafetensorsFile:
    def __init__(self, file: Any) -> None:
        self._file = file

    def names(self) -> list[str]:
        return sorted(self._file.keys())

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._file.get_slice(name).get_shape())

    def tensor(self, name: str) -> torch.Tensor:
        tensor: torch.Tensor = self._file.get_tensor(name)
        return tensor


class _TorchFile:
    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        self._tensors = tensors

    def names(self) -> list[str]:
        return sorted(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._tensors[name].shape)

    def tensor(self, name: str) -> torch.Tensor:
        return self._tensors[name]


def _load(path: Path, device: torch.device | str) -> Mapping[str, torch.Tensor]:
    """Read what torch has saved: a pickle, which could run anything, so only tensors are let in."""
    try:
        saved = torch.load(
            path, map_location=device, weights_only=True, mmap=zipfile.is_zipfile(path)
        )
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise CheckpointError(
            f"{path} is not a readable file of tensors and nothing else: {reason}"
        ) from error
    if not isinstance(saved, dict) or not all(
        isinstance(name, str) and isinstance(tensor, torch.Tensor) for name, tensor in saved.items()
    ):
        raise CheckpointError(f"{path} holds something else than named tensors")
    return saved
