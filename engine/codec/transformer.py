"""The stages of encoder and decoder: patches that reshape, transformers that compute.

Activations are token-major, [B, T, channels]. Submodule names follow the released v1 checkpoints.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

from engine.codec.attention import Attention
from engine.codec.config import PatchConfig, StageConfig, TransformerConfig


class Patch(nn.Module):
    """`size` neighbouring steps become channels: [B, T, C] -> [B, T / size, C * size], C major."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size

    def forward(self, x: Tensor) -> Tensor:
        return x.unflatten(1, (-1, self._size)).transpose(2, 3).flatten(2)


class Unpatch(nn.Module):
    """The inverse of `Patch`: [B, T, C] -> [B, T * size, C / size]."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size

    def forward(self, x: Tensor) -> Tensor:
        return x.unflatten(2, (-1, self._size)).transpose(2, 3).flatten(1, 2)


class Stage(nn.Module):
    """A pre-norm causal transformer between two bias-free projections; no final norm.

    v1 has no projection where it would be square; `square_projections` is how v2 and Nano are.
    """

    def __init__(self, config: TransformerConfig, *, square_projections: bool) -> None:
        super().__init__()
        self.config = config
        self.input_proj = _projection(config.input_dim, config.d_model, square_projections)
        self.transformer = nn.Module()
        self.transformer.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.output_proj = _projection(config.d_model, config.output_dim, square_projections)

    def forward(self, x: Tensor, attention: Attention) -> Tensor:
        x = self.input_proj(x)
        for index, layer in enumerate(self.transformer.layers):
            x = layer(x, index, attention)
        return self.output_proj(x)


class Layer(nn.Module):
    """Attention and a GELU network, each added to the stream through a per-channel scale."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        width = config.d_model
        self.norm1 = nn.LayerNorm(width, eps=1e-5)
        self.self_attn = SelfAttention(width, config.heads)
        self.layer_scale_1 = LayerScale(width)
        self.norm2 = nn.LayerNorm(width, eps=1e-5)
        self.linear1 = nn.Linear(width, config.ff_dim, bias=False)
        self.linear2 = nn.Linear(config.ff_dim, width, bias=False)
        self.layer_scale_2 = LayerScale(width)

    def forward(self, x: Tensor, index: int, attention: Attention) -> Tensor:
        x = self.layer_scale_1(x, self.self_attn(self.norm1(x), index, attention))
        return self.layer_scale_2(x, self.linear2(gelu(self.linear1(self.norm2(x)))))


class SelfAttention(nn.Module):
    """Multi-head attention; what it sees of the past is the business of `attention`."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self._heads = heads
        self.in_projs = nn.ModuleList([nn.Linear(width, 3 * width, bias=False)])
        self.out_projs = nn.ModuleList([nn.Linear(width, width, bias=False)])

    def forward(self, x: Tensor, index: int, attention: Attention) -> Tensor:
        qkv = self.in_projs[0](x).unflatten(-1, (3, self._heads, -1))
        return self.out_projs[0](attention(index, qkv))


class LayerScale(nn.Module):
    """`x + scale * y`."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.empty(width))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.addcmul(x, self.scale, y)


class Stack(nn.ModuleList):
    """The stages of an encoder (`down`) or a decoder, run in order."""

    def __init__(
        self, configs: tuple[StageConfig, ...], *, down: bool, square_projections: bool
    ) -> None:
        patch = Patch if down else Unpatch
        super().__init__(
            patch(config.size)
            if isinstance(config, PatchConfig)
            else Stage(config, square_projections=square_projections)
            for config in configs
        )

    @property
    def transformers(self) -> list[TransformerConfig]:
        """The transformer stages' shapes, in order."""
        return [stage.config for stage in self if isinstance(stage, Stage)]

    def forward(self, x: Tensor, attentions: list[Attention]) -> Tensor:
        """Run `x` [B, T, C]; `attentions` has one for each transformer stage, in order."""
        remaining = iter(attentions)
        for stage in self:
            x = stage(x, next(remaining)) if isinstance(stage, Stage) else stage(x)
        return x


def _projection(input_dim: int, output_dim: int, square: bool) -> nn.Module:
    if input_dim == output_dim and not square:
        return nn.Identity()
    return nn.Linear(input_dim, output_dim, bias=False)
