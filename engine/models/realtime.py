"""MOSS-TTS-Realtime: a Qwen3 backbone over grid rows and a depth transformer over codebooks.

Formulas and tensor names: the released checkpoint; see the docstrings of each part.
"""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, embedding_bag

from engine.checkpoint import load_weights, read_json
from engine.models.depth import Choose, DepthTransformer, embedding_table
from engine.models.qwen3 import Attend, Qwen3Stack, StackConfig

log = logging.getLogger(__name__)

UNUSED_TENSORS = frozenset({"language_model.embed_tokens.weight"})
"""In released checkpoints, never read by the model."""


@dataclasses.dataclass(frozen=True, slots=True)
class RealtimeConfig:
    """`config.json` of a MOSS-TTS-Realtime checkpoint."""

    n_vq: int
    audio_vocabulary: int
    audio_pad: int
    text_vocabulary: int
    backbone: StackConfig
    depth: StackConfig

    @classmethod
    def from_json(cls, config: dict[str, Any]) -> RealtimeConfig:
        backbone = StackConfig.from_json(config["language_config"])
        depth = StackConfig.from_json(config["local_config"])
        if backbone.hidden_size != depth.hidden_size:
            raise ValueError(
                f"local_config.hidden_size {depth.hidden_size} must equal the backbone's "
                f"{backbone.hidden_size}: the model has no projection between them"
            )
        return cls(
            n_vq=config["rvq"],
            audio_vocabulary=config["audio_vocab_size"],
            audio_pad=config["audio_pad_token"],
            text_vocabulary=config["language_config"]["vocab_size"],
            backbone=backbone,
            depth=depth,
        )

    @property
    def audio_eos(self) -> int:
        """In codebook 0 it ends the turn; pad, bos and eos follow the codes in this order."""
        return self.audio_pad + 2


class RealtimeModel(nn.Module):
    """Grid rows in, hidden states out; a hidden state in, the codes of the next frame out."""

    def __init__(self, config: RealtimeConfig) -> None:
        super().__init__()
        self.config = config
        hidden = config.backbone.hidden_size
        self.embed_tokens = nn.ModuleList(
            [embedding_table(config.text_vocabulary, hidden)]
            + [embedding_table(config.audio_vocabulary, hidden) for _ in range(config.n_vq)]
        )
        self.language_model = Qwen3Stack(config.backbone)
        self.local_transformer = DepthTransformer(
            config.depth, config.n_vq, config.audio_vocabulary
        )
        self.audio_table: Tensor | None = None
        self.audio_offsets: Tensor | None = None

    def embed(self, grid: Tensor) -> Tensor:
        """Sum the embeddings of a grid's columns: `grid` i64 [N, 1 + n_vq] -> [N, hidden_size]."""
        if self.audio_table is None or self.audio_offsets is None:
            return sum(
                table(column) for table, column in zip(self.embed_tokens, grid.T, strict=True)
            )
        audio = embedding_bag(grid[:, 1:] + self.audio_offsets, self.audio_table, mode="sum")
        return embedding(grid[:, 0], self.embed_tokens[0].weight) + audio

    def backbone(self, grid: Tensor, rotation: Tensor, attend: Attend) -> Tensor:
        """Final-normed hidden states [N, hidden_size] of grid rows [N, 1 + n_vq]."""
        return self.language_model(self.embed(grid), rotation, attend)

    def depth(self, hidden: Tensor, choose: Choose) -> Tensor:
        """Codes [N, n_vq] of the frame that follows each hidden state [N, hidden_size]."""
        return self.local_transformer(hidden, choose)

    def fuse(self) -> RealtimeModel:
        """Lay tables and weights out for serving; values and tensor names stay as they are."""
        self.language_model.fuse()
        self.local_transformer.model.fuse()
        tables = self.embed_tokens[1:]
        joint = torch.cat([table.weight.detach() for table in tables])
        size = self.config.audio_vocabulary
        for index, table in enumerate(tables):
            rows = joint[index * size : (index + 1) * size]
            table.weight = nn.Parameter(rows, requires_grad=False)
        self.audio_table = joint
        self.audio_offsets = torch.arange(len(tables), device=joint.device) * size
        return self


def load_realtime(
    directory: Path, *, device: str | torch.device = "cpu", dtype: torch.dtype | None = None
) -> RealtimeModel:
    """Load a checkpoint in the released format for serving.

    `dtype` None computes in float32. Raises `CheckpointError` naming every tensor that is missing,
    unexpected or misshapen.
    """
    return read_realtime(directory, device=device, dtype=dtype).eval().fuse()


def read_realtime(
    directory: Path, *, device: str | torch.device = "cpu", dtype: torch.dtype | None = None
) -> RealtimeModel:
    """Like `load_realtime`, but not yet laid out for serving."""
    with torch.device("meta"):
        model = RealtimeModel(RealtimeConfig.from_json(read_json(directory, "config.json")))
    load_weights(model, directory, device=device, dtype=dtype, optional=UNUSED_TENSORS)
    _clear_pad_rows(model)
    return model


def _clear_pad_rows(model: RealtimeModel) -> None:
    """Zero the "no audio here" row of each input table, as the reference runtime does on load."""
    pad = model.config.audio_pad
    for codebook, table in enumerate(model.embed_tokens[1:]):
        row = table.weight.data[pad]
        if row.count_nonzero():
            log.warning("embed_tokens.%d row %d was not zero; cleared", codebook + 1, pad)
            row.zero_()
