"""Load a released checkpoint: JSON settings and weights, every tensor accounted for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from contextlib import ExitStack
from pathlib import Path

import torch
from torch import nn

from engine.hub import CheckpointError, read_json
from engine.weight_files import WeightFile, open_weights

__all__ = ["CheckpointError", "load_weights", "read_json", "read_tensors", "tensor_names"]

_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
"""In order of preference; where there are shards, NAME.index.json names them."""


def load_weights(
    module: nn.Module,
    directory: str | Path,
    *,
    device: torch.device | str,
    dtype: torch.dtype | None,
    optional: Set[str] = frozenset(),
    rename: Callable[[str], str] | None = None,
    stored_name: Callable[[str], str] | None = None,
) -> None:
    """Give `module`, built under `torch.device("meta")`, the weights of a checkpoint.

    Reads `model.safetensors`, or the shards that `model.safetensors.index.json` names, else
    `pytorch_model.bin` or its shards, of which nothing but tensors is let in. Floating tensors of
    any dtype become `dtype` (None: float32) on `device`; others keep their dtype. Parameters come
    out frozen. Buffers that are not persistent stay on meta: set them afterwards.

    `rename` turns a checkpoint's tensor name into the module's. `optional` has module-side names
    of tensors that a checkpoint may hold although the module does not use them.

    Raises `CheckpointError` that names every missing, unexpected and misshapen tensor as the
    checkpoint does; one that is missing is called `stored_name(name)` (None: the module's name).
    """
    directory = Path(directory)
    wanted = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    with ExitStack() as files:
        tensors: dict[str, tuple[WeightFile, str]] = {}  # module-side name -> file, name in it
        for path in _shards(directory):
            file = files.enter_context(open_weights(path, device))
            for stored in file.names():
                tensors[rename(stored) if rename else stored] = (file, stored)
        _check(wanted, tensors, optional, directory, stored_name or str)
        state = {}
        for name in wanted:
            file, stored = tensors[name]
            tensor = file.tensor(stored)
            state[name] = (
                tensor.to(dtype or torch.float32) if tensor.is_floating_point() else tensor
            )
    module.load_state_dict(state, assign=True)
    module.requires_grad_(False)


def tensor_names(directory: str | Path) -> set[str]:
    """Return the names of all tensors that a checkpoint holds. Raises `CheckpointError`."""
    names: set[str] = set()
    for path in _shards(Path(directory)):
        with open_weights(path, "cpu") as file:
            names.update(file.names())
    return names


def read_tensors(directory: str | Path, names: Set[str]) -> dict[str, torch.Tensor]:
    """Return those of `names` that a checkpoint holds, as stored. Raises `CheckpointError`."""
    tensors = {}
    for path in _shards(Path(directory)):
        with open_weights(path, "cpu") as file:
            for name in sorted(names.intersection(file.names())):
                tensors[name] = file.tensor(name)
    return tensors


def _shards(directory: Path) -> list[Path]:
    if not directory.is_dir():
        raise CheckpointError(f"{directory} is not a directory")
    for name in _WEIGHTS:
        if (directory / name).is_file():
            return [directory / name]
        if (directory / f"{name}.index.json").is_file():
            return _indexed(directory, f"{name}.index.json")
    raise CheckpointError(
        f"{directory} has neither {' nor '.join(_WEIGHTS)}, nor an index of shards of either"
    )


def _indexed(directory: Path, index: str) -> list[Path]:
    weight_map = read_json(directory, index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{directory / index} has no weight_map")
    names = sorted(set(weight_map.values()))
    absent = [name for name in names if not (directory / name).is_file()]
    if absent:
        raise CheckpointError(f"{directory / index} names absent shards: {', '.join(absent)}")
    return [directory / name for name in names]


def _check(
    wanted: Mapping[str, tuple[int, ...]],
    tensors: Mapping[str, tuple[WeightFile, str]],
    optional: Set[str],
    directory: Path,
    stored_name: Callable[[str], str],
) -> None:
    found = {name: file.shape(stored) for name, (file, stored) in tensors.items()}
    problems = [
        *(
            f"missing {stored_name(name)} {list(wanted[name])}"
            for name in sorted(wanted.keys() - found)
        ),
        *(
            f"unexpected {tensors[name][1]} {list(found[name])}"
            for name in sorted(found.keys() - wanted - optional)
        ),
        *(
            f"misshapen {tensors[name][1]}: {list(found[name])}, expected {list(wanted[name])}"
            for name in sorted(wanted.keys() & found)
            if found[name] != wanted[name]
        ),
    ]
    if problems:
        raise CheckpointError(
            f"the weights in {directory} do not fit the model ({len(problems)} tensors):\n  "
            + "\n  ".join(problems)
        )
