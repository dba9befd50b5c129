"""Residual vector quantization with factorized codebooks and cosine lookup; always in float32."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, normalize
from torch.nn.utils.parametrizations import weight_norm as with_weight_norm
from torch.nn.utils.parametrize import is_parametrized, remove_parametrizations

from engine.codec.config import CodecConfig


class Codebook(nn.Module):
    """One quantizer's tensors: `codebook_size` entries of a few channels, projections around."""

    def __init__(self, config: CodecConfig, *, weight_norm: bool) -> None:
        super().__init__()
        self.in_proj = _projection(config.rvq_dim, config.codebook_dim, weight_norm)
        # Not nn.Embedding(...): to initialise one on the meta device torch loads its compiler.
        entries = torch.empty(config.codebook_size, config.codebook_dim)
        self.codebook = nn.Embedding.from_pretrained(entries)
        self.out_proj = _projection(config.codebook_dim, config.rvq_dim, weight_norm)


class Quantizer(nn.Module):
    """Latents to codes and back. Each codebook codes what the ones before it left over.

    Tensors are named as in the released checkpoints; `weight_norm` says whether projections are
    stored as magnitude and direction. Call `prepare` after loading.
    """

    def __init__(self, config: CodecConfig, *, weight_norm: bool) -> None:
        super().__init__()
        self.input_proj = _projection(config.latent_dim, config.rvq_dim, weight_norm)
        self.quantizers = nn.ModuleList(
            Codebook(config, weight_norm=weight_norm) for _ in range(config.n_codebooks)
        )
        self.output_proj = _projection(config.rvq_dim, config.latent_dim, weight_norm)

    def prepare(self) -> None:
        """Fold weight norm into plain weights and tabulate what each code contributes."""
        for module in list(self.modules()):
            if is_parametrized(module, "weight"):
                remove_parametrizations(module, "weight")
        self.requires_grad_(False)
        tables = [_apply(book.out_proj, book.codebook.weight) for book in self.quantizers]
        entries = [normalize(book.codebook.weight, eps=1e-12) for book in self.quantizers]
        books = torch.arange(len(tables), device=tables[0].device)
        # tables f32 [K, codebook_size, rvq_dim]; entries f32 [K, codebook_size, codebook_dim]
        self.register_buffer("tables", torch.stack(tables), persistent=False)
        self.register_buffer("entries", torch.stack(entries), persistent=False)
        self.register_buffer("books", books, persistent=False)

    def encode(self, latents: Tensor, n_codebooks: int, valid: Tensor | None = None) -> Tensor:
        """Quantize `latents` f32 [B, F, latent_dim]; returns codes i64 [B, F, n_codebooks].

        Frames that are not `valid` (bool [B, F]; None: all are) get the codes of a zero residual.
        Fewer codebooks give a prefix of the codes that more would give.
        """
        residual = _apply(self.input_proj, latents)
        codes = []
        for book in range(n_codebooks):
            if valid is not None:
                residual = residual * valid[..., None]
            codes.append(self._nearest(book, residual))
            residual = residual - self.tables[book][codes[-1]]
        return torch.stack(codes, -1)

    def decode(self, codes: Tensor) -> Tensor:
        """Latents f32 [B, F, latent_dim] of `codes` i64 [B, F, K], of the first K codebooks.

        A code outside the codebook raises IndexError (on CUDA: a device-side assertion).
        """
        return _apply(self.output_proj, self.sum_entries(codes))

    def sum_entries(self, codes: Tensor) -> Tensor:
        """Sum what `codes` i64 [B, F, K] stand for, unprojected: f32 [B, F, rvq_dim]."""
        return self.tables[self.books[: codes.shape[-1]], codes].sum(-2)

    def _nearest(self, book: int, residual: Tensor) -> Tensor:
        z = normalize(_apply(self.quantizers[book].in_proj, residual), dim=-1, eps=1e-12)
        entries = self.entries[book]
        # The reference's form of the squared distance: near-ties must fall the same way.
        distance = z.square().sum(-1, keepdim=True) - 2 * (z @ entries.T) + entries.square().sum(-1)
        return distance.argmin(-1)


def _projection(input_dim: int, output_dim: int, weight_norm: bool) -> nn.Conv1d:
    projection = nn.Conv1d(input_dim, output_dim, kernel_size=1)
    return with_weight_norm(projection) if weight_norm else projection


def _apply(projection: nn.Conv1d, x: Tensor) -> Tensor:
    """The 1x1 convolution on token-major `x` [..., channels]."""
    return linear(x, projection.weight.squeeze(-1), projection.bias)
