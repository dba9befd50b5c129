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

_LONG = 512  # above it the fused kernel, which holds no scores; below it plain products are faster


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
        sequences = zip(q.split(lengths), k.split(lengths), v.split(lengths), strict=True)
        return torch.cat([_causal(q[None], k[None], v[None])[0] for q, k, v in sequences])

    return attend


def _attend_frames(n_vq: int) -> Attend:
    def attend(_layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        frames = (x.unflatten(0, (-1, n_vq)) for x in (q, k, v))
        return _causal(*frames).flatten(0, 1)

    return attend


def _causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention of `q` [B, T, heads, D] to `k`, `v` [B, T, kv_heads, D]; out like `q`."""
    if q.shape[1] > _LONG:
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        out = scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return out.transpose(1, 2)
    length, head_dim = q.shape[1], q.shape[3]
    # Query heads of one key head side by side: keys and values are not repeated.
    grouped = q.unflatten(2, (k.shape[2], -1)).permute(0, 2, 3, 1, 4)  # [B, kv_heads, group, T, D]
    k, v = (x.transpose(1, 2).flatten(0, 1) for x in (k, v))
    future = torch.full((length, length), -torch.inf, dtype=v.dtype, device=v.device).triu(1)
    scores = torch.baddbmm(
        future.repeat(grouped.shape[2], 1),
        grouped.flatten(2, 3).flatten(0, 1),
        k.mT,
        alpha=head_dim**-0.5,
    )
    out = (scores.softmax(-1) @ v).view(grouped.shape)
    return out.permute(0, 3, 1, 2, 4).flatten(2, 3)


def _compute_like(x: Tensor) -> Tensor:
    """An empty tensor of the dtype in which matrix products of `x` come out."""
    kind = x.device.type
    autocast = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    return x.new_empty(0, dtype=torch.get_autocast_dtype(kind) if autocast else x.dtype)
