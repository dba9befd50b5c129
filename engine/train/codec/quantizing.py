"""The quantizer in training: a straight-through pass that keeps only some of the codebooks."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor
from torch.nn.functional import mse_loss, normalize

from engine.codec.quantizer import Codebook, Projection, Quantizer

COMMITMENT = 0.25
CODEBOOK = 0.5
RARE = 2  # a code used less often between two calls of `revive` is dead


@dataclasses.dataclass(frozen=True, slots=True)
class Quantized:
    """What came out of one pass."""

    latents: Tensor  # f32 [B, F, latent_dim], for the decoder
    entries: list[Tensor]  # per codebook, f32 [B, F, rvq_dim]: what its codes stand for
    codes: Tensor  # i64 [K, B, F]
    loss: Tensor  # entries and encoder output drawn to each other, a scalar


def make_trainable(quantizer: Quantizer) -> None:
    """Fold the projections to plain weights and let everything learn."""
    for module in quantizer.modules():
        if isinstance(module, Projection):
            module.fold()
    quantizer.requires_grad_(True)


def quantize(quantizer: Quantizer, latents: Tensor, keep: Tensor) -> Quantized:
    """Quantize `latents` f32 [B, F, latent_dim]; stream b keeps its first `keep[b]` codes.

    Streams of few codes teach the first codebooks to carry what matters most.
    """
    residual = quantizer.input_proj(latents)
    total = torch.zeros_like(residual)
    loss = latents.new_zeros(())
    entries, codes = [], []
    for index, book in enumerate(quantizer.quantizers):
        wanted = book.in_proj(residual)
        code = nearest(book, wanted)
        entry = book.codebook.weight[code]
        loss = loss + COMMITMENT * mse_loss(wanted, entry.detach())
        loss = loss + CODEBOOK * mse_loss(entry, wanted.detach())
        contribution = book.out_proj(wanted + (entry - wanted).detach())
        total = total + contribution * (index < keep)[:, None, None]
        residual = residual - contribution
        entries.append(contribution)
        codes.append(code)
    return Quantized(quantizer.output_proj(total), entries, torch.stack(codes), loss)


def nearest(book: Codebook, wanted: Tensor) -> Tensor:
    """The code of largest cosine, i64 [B, F], for `wanted` [B, F, codebook_dim]."""
    with torch.no_grad():
        return (normalize(wanted, dim=-1) @ normalize(book.codebook.weight, dim=-1).T).argmax(-1)


@torch.no_grad()
def initialise(quantizer: Quantizer, latents: Tensor) -> None:
    """Start from data: entries are encoder outputs, `out_proj` the least-squares way back."""
    residual = quantizer.input_proj(latents).flatten(0, 1)
    for book in quantizer.quantizers:
        wanted = book.in_proj(residual)
        size = book.codebook.weight.shape[0]
        book.codebook.weight.copy_(wanted[torch.randint(len(wanted), (size,))])
        entry = book.codebook.weight[nearest(book, wanted)]
        ones = torch.ones(len(entry), 1)
        solution = torch.linalg.lstsq(torch.cat([entry, ones], 1), residual).solution
        book.out_proj.weight.copy_(solution[:-1].T)
        book.out_proj.bias.copy_(solution[-1])
        residual = residual - book.out_proj(entry)


@torch.no_grad()
def revive(quantizer: Quantizer, latents: Tensor, uses: Tensor) -> int:
    """Replace codes used less than twice (`uses` i64 [K, size]) by outputs of the encoder."""
    residual = quantizer.input_proj(latents)
    revived = 0
    for book, counts in zip(quantizer.quantizers, uses, strict=True):
        wanted = book.in_proj(residual)
        dead = (counts < RARE).nonzero().flatten()
        flat = wanted.flatten(0, 1)
        book.codebook.weight[dead] = flat[torch.randint(len(flat), (len(dead),))]
        residual = residual - book.out_proj(book.codebook.weight[nearest(book, wanted)])
        revived += len(dead)
    return revived
