"""The depth transformer: from one hidden state to the codes of one frame, codebook by codebook."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from engine.models.qwen3 import Attend, Qwen3Stack, StackConfig
from kernels.attention import attend_rows

Choose = Callable[[int, Tensor], Tensor]
"""(codebook, logits [N, vocabulary] f32) -> codes [N] i64."""


def embedding_table(rows: int, size: int) -> nn.Embedding:
    """An embedding [rows, size] without initial values.

    Initialising one on the meta device would make torch import its compiler: seconds at start-up.
    """
    return nn.Embedding.from_pretrained(torch.empty(rows, size))


class DepthStack(Qwen3Stack):
    """The local transformer's layers, norm and input tables of codebooks 0..n_vq-2."""

    def __init__(self, config: StackConfig, n_vq: int, vocabulary: int) -> None:
        super().__init__(config)
        self.embed_tokens = nn.ModuleList(
            embedding_table(vocabulary, config.hidden_size) for _ in range(n_vq - 1)
        )


class DepthTransformer(nn.Module):
    """Draws the `n_vq` codes of a frame in order; codebook i sees those before it."""

    def __init__(self, config: StackConfig, n_vq: int, vocabulary: int) -> None:
        super().__init__()
        self.n_vq = n_vq
        self.model = DepthStack(config, n_vq, vocabulary)
        self.local_lm_heads = nn.ModuleList(
            nn.Linear(config.hidden_size, vocabulary, bias=False) for _ in range(n_vq)
        )

    def forward(self, hidden: Tensor, choose: Choose) -> Tensor:
        """`hidden` [N, hidden_size] -> codes [N, n_vq] i64, each drawn by `choose`."""
        rows, config = hidden.shape[0], self.model.config
        store = hidden.new_empty(
            config.layers, 2, rows, config.kv_heads, self.n_vq, config.head_dim
        )
        rotations = config.rotations(self.n_vq, like=hidden)
        codes = []
        x = hidden
        for codebook in range(self.n_vq):
            rotation = rotations[codebook : codebook + 1].expand(rows, -1, -1)
            y = self.model(x, rotation, attend_so_far(store, codebook))
            code = choose(codebook, self.local_lm_heads[codebook](y).float())
            codes.append(code)
            if codebook + 1 < self.n_vq:
                x = self.model.embed_tokens[codebook](code)
        return torch.stack(codes, 1)


def attend_so_far(store: Tensor, position: int) -> Attend:
    """Keep k, v in `store` [layers, 2, N, kv_heads, n_vq, D] and attend to 0..position."""

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        store[layer, 0, :, :, position] = k
        store[layer, 1, :, :, position] = v
        keys, values = store[layer, :, :, :, : position + 1]
        return attend_rows(q, keys, values, None)

    return attend
