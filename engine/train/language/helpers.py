"""What helps the model to learn and is then dropped: phonemes in tokens, two extra heads."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from engine.train.corpus.teacher import PHONEMES
from engine.train.language.spoken import LABELS_PER_FRAME
from engine.train.language.vocabulary import MAX_PHONEMES
from engine.train.packing import IGNORE


class PhoneticTable(nn.Module):
    """Text embeddings: a row of each token plus rows of its phonemes by place from both ends."""

    def __init__(self, phonemes: list[list[int]], size: int) -> None:
        super().__init__()
        self._nothing = MAX_PHONEMES * PHONEMES
        rows = self._nothing + 1
        # A token that training never meets is what its phonemes say.
        own = torch.randn(len(phonemes), size) * 0.02
        own[[bool(said) for said in phonemes]] = 0
        self.own = nn.Parameter(own)
        self.from_start, self.from_end = (
            nn.EmbeddingBag(rows, size, mode="sum", padding_idx=self._nothing) for _ in range(2)
        )
        for bag in (self.from_start, self.from_end):
            nn.init.normal_(bag.weight, std=0.02)
            nn.init.zeros_(bag.weight[self._nothing])
        places = torch.full((2, len(phonemes), MAX_PHONEMES), self._nothing)
        for token, said in enumerate(phonemes):
            for index, phoneme in enumerate(said):
                places[0, token, index] = index * PHONEMES + phoneme
                places[1, token, index] = (len(said) - 1 - index) * PHONEMES + phoneme
        self.register_buffer("_places", places, persistent=False)

    def rows(self, ids: Tensor) -> Tensor:
        """Embeddings [U, size] of tokens `ids` i64 [U]."""
        start, end = self._places[:, ids]
        return self.own[ids] + self.from_start(start) + self.from_end(end)

    @torch.no_grad()
    def merged(self) -> Tensor:
        """The plain table [tokens, size] that serves."""
        return self.rows(torch.arange(len(self.own), device=self.own.device))


class Heads(nn.Module):
    """Asks half-way which token is being said, and at the top which phonemes."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.token = nn.Linear(size, size, bias=False)
        self.phonemes = nn.Linear(size, LABELS_PER_FRAME * PHONEMES)

    def token_loss(self, middle: Tensor, table: Tensor, wanted: Tensor) -> Tensor:
        """`middle` [M, size], `table` [U, size] of the batch's tokens, `wanted` [M] rows of it."""
        middle = torch.nn.functional.rms_norm(middle.float(), middle.shape[-1:])
        return cross_entropy((self.token(middle) @ table.T).float(), wanted, ignore_index=IGNORE)

    def phoneme_loss(self, hidden: Tensor, wanted: Tensor) -> Tensor:
        """`hidden` [M, size], `wanted` [M, 4]."""
        logits = self.phonemes(hidden).float().view(-1, PHONEMES)
        return cross_entropy(logits, wanted.flatten(), ignore_index=IGNORE)
