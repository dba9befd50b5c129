"""Residual vector quantization with factorized codebooks and cosine lookup; always in float32."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, normalize

from engine.codec.config import CodecConfig


class Projection(nn.Module):
    """A linear map with bias, stored as the released 1x1 convolution.

    That is a `weight` [out, in, 1], or with `weight_norm` its rows' lengths and directions, under
    the names that torch gives them. `fold` leaves a plain weight [out, in]. Torch's own weight norm
    would do, but loads the compiler to initialise on the meta device: a second of start-up.
    """

    def __init__(self, input_dim: int, output_dim: int, *, weight_norm: bool) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.empty(output_dim))
        weight = nn.Parameter(torch.empty(output_dim, input_dim, 1))
        if weight_norm:
            self.parametrizations = nn.Module()
            self.parametrizations.weight = nn.Module()
            self.parametrizations.weight.original0 = nn.Parameter(torch.empty(output_dim, 1, 1))
            self.parametrizations.weight.original1 = weight
        else:
            self.weight = weight

    def fold(self) -> None:
        """Replace lengths and directions by the weight that they stand for."""
        if hasattr(self, "parametrizations"):
            stored = self.parametrizations.weight
            direction = stored.original1 / stored.original1.norm(dim=1, keepdim=True)
            self.weight = nn.Parameter(stored.original0 * direction)
            del self.parametrizations
        self.weight = nn.Parameter(self.weight.squeeze(-1), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map `x` [..., in]; only once folded."""
        return linear(x, self.weight, self.bias)


class Codebook(nn.Module):
    """One quantizer's tensors: `codebook_size` entries of a few channels, projections around."""

    def __init__(self, config: CodecConfig, *, weight_norm: bool) -> None:
        super().__init__()
        self.in_proj = Projection(config.rvq_dim, config.codebook_dim, weight_norm=weight_norm)
        # Not nn.Embedding(...): to initialise one on the meta device torch loads its compiler.
        entries = torch.empty(config.codebook_size, config.codebook_dim)
        self.codebook = nn.Embedding.from_pretrained(entries)
        self.out_proj = Projection(config.codebook_dim, config.rvq_dim, weight_norm=weight_norm)


class Quantizer(nn.Module):
    """Latents to codes and back. Each codebook codes what the ones before it left over.

    Tensors are named as in the released checkpoints; `weight_norm` says whether projections are
    stored as magnitude and direction. Call `prepare` after loading.
    """

    def __init__(self, config: CodecConfig, *, weight_norm: bool) -> None:
        super().__init__()
        self.input_proj = Projection(config.latent_dim, config.rvq_dim, weight_norm=weight_norm)
        self.quantizers = nn.ModuleList(
            Codebook(config, weight_norm=weight_norm) for _ in range(config.n_codebooks)
        )
        self.output_proj = Projection(config.rvq_dim, config.latent_dim, weight_norm=weight_norm)

    def prepare(self) -> None:
        """Fold weight norm into plain weights and tabulate what each code contributes."""
        for module in self.modules():
            if isinstance(module, Projection):
                module.fold()
        tables = [book.out_proj(book.codebook.weight) for book in self.quantizers]
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
        residual = self.input_proj(latents)
        codes = []
        for book in range(n_codebooks):
            if valid is not None:
                residual = residual * valid[..., None]
            codes.append(self._nearest(book, residual))
            residual = residual - self.tables[book][codes[-1]]
        return torch.stack(codes, -1)

    def decode(self, codes: Tensor) -> Tensor:
        """Latents f32 [B, F, latent_dim] of `codes` i64 [B, F, K], of the first K codebooks.

        Every code must be in its codebook: `AudioCodec.latents` checks that first.
        """
        return self.output_proj(self.sum_entries(codes))

    def sum_entries(self, codes: Tensor) -> Tensor:
        """Sum what `codes` i64 [B, F, K] stand for, unprojected: f32 [B, F, rvq_dim]."""
        return self.tables[self.books[: codes.shape[-1]], codes].sum(-2)

    def _nearest(self, book: int, residual: Tensor) -> Tensor:
        z = normalize(self.quantizers[book].in_proj(residual), dim=-1, eps=1e-12)
        entries = self.entries[book]
        # The reference's form of the squared distance: near-ties must fall the same way.
        distance = z.square().sum(-1, keepdim=True) - 2 * (z @ entries.T) + entries.square().sum(-1)
        return distance.argmin(-1)
