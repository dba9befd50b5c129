"""The Qwen3 decoder stack, shared by the backbone and by the depth transformer.

The stack knows nothing of caches: it hands each layer's queries, keys and values to an `Attend`,
which stores what must be kept and returns the attention output. Tensor names are the checkpoint's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, silu

from kernels.norm import rms_norm
from kernels.rope import apply_rope, rope_table

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""(layer, q [N, heads, D], k, v [N, kv_heads, D]) -> [N, heads, D]; q and k are rotated."""


@dataclasses.dataclass(frozen=True, slots=True)
class StackConfig:
    """Sizes of one stack, read from a Qwen3-style config section."""

    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    rope_factor: float
    max_positions: int

    @classmethod
    def from_json(cls, section: dict[str, Any]) -> StackConfig:
        """Read flat (`rope_theta`) or nested (`rope_parameters`) rotary settings; nested wins."""
        rope = section.get("rope_parameters") or section.get("rope_scaling") or {}
        theta = rope.get("rope_theta", section.get("rope_theta"))
        if theta is None:
            raise ValueError("config names no rope_theta, neither flat nor in rope_parameters")
        kind = rope.get("rope_type", section.get("rope_type", "default"))
        if kind not in ("default", "linear"):
            raise ValueError(f"rope_type {kind!r} is not supported; known: default, linear")
        if section.get("attention_bias"):
            raise ValueError("attention_bias true is not supported: released models have none")
        return cls(
            hidden_size=section["hidden_size"],
            intermediate_size=section["intermediate_size"],
            layers=section["num_hidden_layers"],
            heads=section["num_attention_heads"],
            kv_heads=section["num_key_value_heads"],
            head_dim=section["head_dim"],
            rms_norm_eps=section["rms_norm_eps"],
            rope_theta=float(theta),
            rope_factor=float(rope.get("factor", 1.0)) if kind == "linear" else 1.0,
            max_positions=section["max_position_embeddings"],
        )

    def rotations(self, positions: int, like: Tensor) -> Tensor:
        """Table `[positions, 2, head_dim]` for `apply_rope`, of the dtype and device of `like`."""
        table = rope_table(positions, self.head_dim, self.rope_theta, self.rope_factor, like.device)
        return table.to(like.dtype)


class RMSNorm(nn.Module):
    """`weight` [D] and an epsilon; see `kernels.norm`."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.weight, self.eps)


class Attention(nn.Module):
    """Grouped-query attention with normalised, rotated queries and keys."""

    def __init__(self, config: StackConfig) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = config.heads, config.kv_heads, config.head_dim
        kv_size = config.kv_heads * config.head_dim
        self.q_proj = nn.Linear(config.hidden_size, config.heads * config.head_dim, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, kv_size, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, kv_size, bias=False)
        self.o_proj = nn.Linear(config.heads * config.head_dim, config.hidden_size, bias=False)
        self.q_norm = RMSNorm(config.head_dim, config.rms_norm_eps)
        self.k_norm = RMSNorm(config.head_dim, config.rms_norm_eps)
        self.qkv: Tensor | None = None
        self.qk_scale: Tensor | None = None

    def forward(self, layer: int, x: Tensor, rotation: Tensor, attend: Attend) -> Tensor:
        q, k, v = self._project(x, rotation)
        return self.o_proj(attend(layer, q, k, v).reshape(x.shape[0], -1))

    def _project(self, x: Tensor, rotation: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [N, heads, D], keys and values [N, kv_heads, D]; the first two rotated."""
        if self.qkv is None or self.qk_scale is None:
            q, k, v = (
                projection(x).view(x.shape[0], -1, self.head_dim)
                for projection in (self.q_proj, self.k_proj, self.v_proj)
            )
            return apply_rope(self.q_norm(q), rotation), apply_rope(self.k_norm(k), rotation), v
        heads, kv_heads = self.heads, self.kv_heads
        joint = linear(x, self.qkv).view(x.shape[0], -1, self.head_dim)
        qk, v = joint.split((heads + kv_heads, kv_heads), dim=1)
        q, k = apply_rope(rms_norm(qk, self.qk_scale, self.q_norm.eps), rotation).split(
            (heads, kv_heads), dim=1
        )
        return q, k, v

    def fuse(self) -> None:
        self.qkv = _share_storage([self.q_proj, self.k_proj, self.v_proj])
        scales = [self.q_norm.weight] * self.heads + [self.k_norm.weight] * self.kv_heads
        self.qk_scale = torch.stack(scales).detach()


class MLP(nn.Module):
    """Gated feed-forward: `down(silu(gate(x)) * up(x))`."""

    def __init__(self, config: StackConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)
        self.gate_up: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.gate_up is not None:
            gate, up = linear(x, self.gate_up).chunk(2, dim=-1)
        else:
            gate, up = self.gate_proj(x), self.up_proj(x)
        return self.down_proj(silu(gate) * up)

    def fuse(self) -> None:
        self.gate_up = _share_storage([self.gate_proj, self.up_proj])


class Layer(nn.Module):
    """Pre-norm attention and feed-forward, each added to the residual stream."""

    def __init__(self, config: StackConfig) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = MLP(config)

    def forward(self, layer: int, x: Tensor, rotation: Tensor, attend: Attend) -> Tensor:
        x = x + self.self_attn(layer, self.input_layernorm(x), rotation, attend)
        return x + self.mlp(self.post_attention_layernorm(x))


class Qwen3Stack(nn.Module):
    """`layers` and the final `norm`; input and output are rows [N, hidden_size]."""

    def __init__(self, config: StackConfig) -> None:
        super().__init__()
        self.config = config
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, x: Tensor, rotation: Tensor, attend: Attend) -> Tensor:
        """`x` [N, hidden_size], `rotation` [N, 2, head_dim]; returns final-normed hidden states."""
        for index, layer in enumerate(self.layers):
            x = layer(index, x, rotation, attend)
        return self.norm(x)

    def fuse(self) -> None:
        """Lay weights that multiply the same input side by side, so that one product serves them.

        The separate parameters stay, as views of the joint storage.
        """
        for layer in self.layers:
            layer.self_attn.fuse()
            layer.mlp.fuse()


def _share_storage(modules: list[nn.Linear]) -> Tensor:
    joint = torch.cat([module.weight.detach() for module in modules])
    start = 0
    for module in modules:
        stop = start + module.weight.shape[0]
        module.weight = nn.Parameter(joint[start:stop], requires_grad=False)
        start = stop
    return joint
