"""What releases of the codec call its tensors. Modules have the names of v1's released checkpoint.

v2 and Nano name a layer's projections otherwise, and checkpoints that an older torch wrote name the
two halves of a weight norm otherwise.
"""

from __future__ import annotations

from collections.abc import Set

_ALIASES = {
    ".self_attn.in_proj.weight": ".self_attn.in_projs.0.weight",
    ".self_attn.in_proj_weight": ".self_attn.in_projs.0.weight",
    ".self_attn.out_proj.weight": ".self_attn.out_projs.0.weight",
    ".ffn.0.weight": ".linear1.weight",
    ".ffn.2.weight": ".linear2.weight",
    ".weight_g": ".parametrizations.weight.original0",
    ".weight_v": ".parametrizations.weight.original1",
}
"""How names end: elsewhere, and here."""


def canonical(name: str) -> str:
    """Return the module's name for a tensor that a checkpoint calls `name`."""
    return _respelled(name, _ALIASES)


class Spelling:
    """How one checkpoint, whose tensors are called `names`, spells what modules call otherwise."""

    def __init__(self, names: Set[str]) -> None:
        self._endings = {
            ours: theirs
            for theirs, ours in _ALIASES.items()
            if any(name.endswith(theirs) for name in names)
        }

    def stored(self, name: str) -> str:
        """Return what the checkpoint calls, or would call, the tensor that is `name` here."""
        return _respelled(name, self._endings)


def _respelled(name: str, endings: dict[str, str]) -> str:
    for old, new in endings.items():
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name
