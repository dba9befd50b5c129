"""Teacher-forced forward passes through the modules that serve, and the loss of their codes.

The caller chooses the precision: everything works in float32 and under `torch.autocast`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

from engine.models.qwen3 import Attend
from engine.models.realtime import RealtimeModel
from engine.train.packing import IGNORE


@overload
def hidden_states(model: RealtimeModel, embedded: Tensor, lengths: Sequence[int]) -> Tensor: ...
@overload
def hidden_states(
    model: RealtimeModel, embedded: Tensor, lengths: Sequence[int], *, tap: int
) -> tuple[Tensor, Tensor]: ...
def hidden_states(
    model: RealtimeModel, embedded: Tensor, lengths: Sequence[int], *, tap: int | None = None
) -> Tensor | tuple[Tensor, Tensor]:
    """Final-normed hidden states [N, hidden_size] of packed sequences `embedded` [N, hidden_size].

    Sequence i has `lengths[i]` grid rows, positions from 0, and sees only itself. With `tap`, also
    what leaves layer `tap` [N, hidden_size], not normed.
    """
    stack = model.language_model
    table = stack.config.rotations(max(lengths), like=_compute_like(embedded))
    rotation = torch.cat([table[:length] for length in lengths])
    attend = _attend_packed(list(lengths))
    x, tapped = embedded, embedded
    for index, layer in enumerate(stack.layers):
        x = layer(index, x, rotation, attend)
        if index == tap:
            tapped = x
    x = stack.norm(x)
    return x if tap is None else (x, tapped)


def code_logits(model: RealtimeModel, hidden: Tensor, codes: Tensor) -> Tensor:
    """Logits [M, n_vq, vocabulary] of the frames `codes` [M, n_vq] that follow `hidden` [M, H].

    Codebook i is given the true codes of those before it. `IGNORE` in `codes` stands for no sound.
    """
    depth = model.local_transformer
    frames, n_vq = codes.shape
    given = codes.where(codes != IGNORE, model.config.audio_pad)
    inputs = [hidden] + [
        table(given[:, codebook]) for codebook, table in enumerate(depth.model.embed_tokens)
    ]
    x = torch.stack(inputs, 1).flatten(0, 1)
    rotation = depth.model.config.rotations(n_vq, like=_compute_like(x)).repeat(frames, 1, 1)
    y = depth.model(x, rotation, _attend_frames(n_vq)).unflatten(0, (frames, n_vq))
    heads = zip(depth.local_lm_heads, y.unbind(1), strict=True)
    return torch.stack([head(state) for head, state in heads], 1)


def code_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy f32 [M, n_vq] of `labels` [M, n_vq]; 0 where `IGNORE`."""
    flat = cross_entropy(
        logits.flatten(0, 1).float(), labels.flatten(), ignore_index=IGNORE, reduction="none"
    )
    return flat.view(labels.shape)


def _attend_packed(lengths: list[int]) -> Attend:
    def attend(_layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out = [
            _causal(*(x.transpose(0, 1)[None] for x in sequence))[0].transpose(0, 1)
            for sequence in zip(*(x.to(v.dtype).split(lengths) for x in (q, k, v)), strict=True)
        ]
        return torch.cat(out)

    return attend


def _attend_frames(n_vq: int) -> Attend:
    def attend(_layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        frames = (x.to(v.dtype).unflatten(0, (-1, n_vq)).transpose(1, 2) for x in (q, k, v))
        return _causal(*frames).transpose(1, 2).flatten(0, 1)

    return attend


def _causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


def _compute_like(x: Tensor) -> Tensor:
    """An empty tensor of the dtype in which matrix products of `x` come out."""
    kind = x.device.type
    autocast = torch.is_autocast_enabled(kind)
    return x.new_empty(0, dtype=torch.get_autocast_dtype(kind) if autocast else x.dtype)
