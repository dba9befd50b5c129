"""The GPT-2 decoder stack with rotary positions, of MOSS-TTS-Nano and of both local transformers.

Like `Qwen3Stack` it knows nothing of caches: an `Attend` stores keys and values and answers.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import gelu, silu

from engine.models.qwen3 import Attend
from kernels.rope import apply_rope_pairs, rope_pairs_table

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": silu,
    "gelu_new": functools.partial(gelu, approximate="tanh"),
}


@dataclasses.dataclass(frozen=True, slots=True)
class GPT2Config:
    """Sizes of one stack, read from a `gpt2_config` section.

    Names are those of `StackConfig`, so that the KV cache takes either.
    """

    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    activation: str
    layer_norm_eps: float
    rope_theta: float
    max_positions: int

    @classmethod
    def from_json(cls, section: dict[str, Any]) -> GPT2Config:
        """Read a section; raises `ValueError` naming a setting that no released model has."""
        for name, wanted, default in (
            ("position_embedding_type", "rope", "absolute"),
            ("scale_attn_weights", True, True),
            ("scale_attn_by_inverse_layer_idx", False, False),
        ):
            found = section.get(name, default)
            if found != wanted:
                raise ValueError(
                    f"gpt2_config.{name} {found!r} is not supported: "
                    f"released models have {wanted!r}"
                )
        activation = section["activation_function"]
        if activation not in ACTIVATIONS:
            raise ValueError(
                f"gpt2_config.activation_function {activation!r} is not supported; "
                f"known: {', '.join(ACTIVATIONS)}"
            )
        hidden, heads = section["n_embd"], section["n_head"]
        if hidden % (2 * heads):
            raise ValueError(f"gpt2_config.n_embd {hidden} is no even multiple of n_head {heads}")
        return cls(
            hidden_size=hidden,
            intermediate_size=section.get("n_inner") or 4 * hidden,
            layers=section["n_layer"],
            heads=heads,
            activation=activation,
            layer_norm_eps=section["layer_norm_epsilon"],
            rope_theta=float(section.get("rope_base", 1e4)),
            max_positions=section["n_positions"],
        )

    @property
    def kv_heads(self) -> int:
        """Every head has keys and values of its own."""
        return self.heads

    @property
    def head_dim(self) -> int:
        """Channels of a head."""
        return self.hidden_size // self.heads

    def rotations(self, positions: int, like: Tensor) -> Tensor:
        """Table `[positions, 2, head_dim]` of the dtype and device of `like`.

        Computed in float32 from the settings, never read from a checkpoint.
        """
        table = rope_pairs_table(positions, self.head_dim, self.rope_theta, like.device)
        return table.to(like.dtype)


class Attention(nn.Module):
    """Multi-head attention with rotated queries and keys; all projections have a bias."""

    def __init__(self, config: GPT2Config) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        self.c_attn = nn.Linear(config.hidden_size, 3 * config.hidden_size)
        self.c_proj = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, layer: int, x: Tensor, rotation: Tensor, attend: Attend) -> Tensor:
        q, k, v = self.c_attn(x).view(x.shape[0], 3, -1, self.head_dim).unbind(1)
        out = attend(layer, apply_rope_pairs(q, rotation), apply_rope_pairs(k, rotation), v)
        return self.c_proj(out.reshape(x.shape[0], -1))


class MLP(nn.Module):
    """Feed-forward of two matrices: `fc_out(activation(fc_in(x)))`."""

    def __init__(self, config: GPT2Config) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[config.activation]
        self.fc_in = nn.Linear(config.hidden_size, config.intermediate_size)
        self.fc_out = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc_out(self.activation(self.fc_in(x)))


class Block(nn.Module):
    """Pre-norm attention and feed-forward, each added to the residual stream."""

    def __init__(self, config: GPT2Config) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.hidden_size, config.layer_norm_eps)
        self.attn = Attention(config)
        self.ln_2 = nn.LayerNorm(config.hidden_size, config.layer_norm_eps)
        self.mlp = MLP(config)

    def forward(self, layer: int, x: Tensor, rotation: Tensor, attend: Attend) -> Tensor:
        x = x + self.attn(layer, self.ln_1(x), rotation, attend)
        return x + self.mlp(self.ln_2(x))


class GPT2Stack(nn.Module):
    """Blocks `h` and the final `ln_f`; input and output are rows [N, hidden_size]."""

    def __init__(self, config: GPT2Config) -> None:
        super().__init__()
        self.config = config
        self.h = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.ln_f = nn.LayerNorm(config.hidden_size, config.layer_norm_eps)

    def forward(self, x: Tensor, rotation: Tensor, attend: Attend) -> Tensor:
        """`x` [N, hidden_size], `rotation` [N, 2, head_dim]; returns final-normed hidden states."""
        for index, block in enumerate(self.h):
            x = block(index, x, rotation, attend)
        return self.ln_f(x)
