"""Attention of new positions over a dense key/value store, with grouped query heads.

Query heads that share a key/value head are laid side by side as query positions of that head, so
that keys and values are read in place and never repeated.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention


def attend_rows(q: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None) -> Tensor:
    """One new position for each of S sequences.

    `q` [S, heads, D]; `keys`, `values` [S, kv_heads, L, D]; `bias` [S, 1, 1, L] is 0 where a key is
    visible, else -inf (None: all are). Returns [S, heads, D].
    """
    sequences, heads, head_dim = q.shape
    grouped = q.view(sequences, keys.shape[1], heads // keys.shape[1], head_dim)
    if bias is not None:
        bias = bias.expand(-1, -1, grouped.shape[2], -1)
    return scaled_dot_product_attention(grouped, keys, values, attn_mask=bias).reshape(q.shape)


def attend_sequence(q: Tensor, keys: Tensor, values: Tensor, bias: Tensor) -> Tensor:
    """T new positions of one sequence.

    `q` [T, heads, D]; `keys`, `values` [kv_heads, L, D]; `bias` [T, L]. Returns [T, heads, D].
    """
    new, heads, head_dim = q.shape
    group = heads // keys.shape[0]
    grouped = (
        q.view(new, -1, group, head_dim).permute(1, 2, 0, 3).reshape(1, -1, group * new, head_dim)
    )
    out = scaled_dot_product_attention(
        grouped, keys[None], values[None], attn_mask=bias.repeat(group, 1)
    )
    return out.view(-1, group, new, head_dim).permute(2, 0, 1, 3).reshape(q.shape)
