"""The delay-pattern models: a Qwen3 backbone over grid rows, one head for text and one a codebook.

MOSS-TTS, MOSS-TTSD, MOSS-SoundEffect and MOSS-VoiceGenerator differ in sizes and prompts only.
Formulas and tensor names: the released checkpoints.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, embedding_bag, linear

from engine.checkpoint import load_weights, read_json, tensor_names
from engine.models.delay_pattern import DelayFormat
from engine.models.depth import embedding_table
from engine.models.qwen3 import Attend, Qwen3Stack, StackConfig

_TEXT_HEAD = "lm_heads.0.weight"
_TEXT_HEAD_ALIAS = "language_model.lm_head.weight"


@dataclasses.dataclass(frozen=True, slots=True)
class DelayConfig:
    """`config.json` of a delay-pattern checkpoint."""

    form: DelayFormat
    backbone: StackConfig

    @classmethod
    def from_json(cls, config: dict[str, Any]) -> DelayConfig:
        form = DelayFormat.from_json(config)
        return cls(form, StackConfig.from_json(config["language_config"]))

    @property
    def n_vq(self) -> int:
        """Codebooks of a frame."""
        return self.form.n_vq


class DelayStack(Qwen3Stack):
    """The backbone's layers and norm, and the input table of text ids."""

    def __init__(self, config: StackConfig, text_vocabulary: int) -> None:
        super().__init__(config)
        self.embed_tokens = embedding_table(text_vocabulary, config.hidden_size)


class DelayModel(nn.Module):
    """Grid rows in, hidden states out; a hidden state in, logits of the next grid row out."""

    def __init__(self, config: DelayConfig) -> None:
        super().__init__()
        self.config = config
        form, hidden = config.form, config.backbone.hidden_size
        self.audio_rows = form.audio_pad + 1  # of a table or head: the codes and the pad
        self.language_model = DelayStack(config.backbone, form.text_vocabulary)
        self.emb_ext = nn.ModuleList(
            embedding_table(self.audio_rows, hidden) for _ in range(form.n_vq)
        )
        self.lm_heads = nn.ModuleList(
            nn.Linear(hidden, rows, bias=False)
            for rows in [form.text_vocabulary] + [self.audio_rows] * form.n_vq
        )
        self.audio_table: Tensor | None = None
        self.audio_offsets: Tensor | None = None
        self.audio_head: Tensor | None = None

    def embed(self, grid: Tensor) -> Tensor:
        """Sum the embeddings of a grid's columns: `grid` i64 [N, 1 + n_vq] -> [N, hidden_size].

        The pad code has a trained embedding and counts like any other.
        """
        if self.audio_table is None or self.audio_offsets is None:
            tables = [self.language_model.embed_tokens, *self.emb_ext]
            return sum(table(column) for table, column in zip(tables, grid.T, strict=True))
        audio = embedding_bag(grid[:, 1:] + self.audio_offsets, self.audio_table, mode="sum")
        return embedding(grid[:, 0], self.language_model.embed_tokens.weight) + audio

    def backbone(self, grid: Tensor, rotation: Tensor, attend: Attend) -> Tensor:
        """Final-normed hidden states [N, hidden_size] of grid rows [N, 1 + n_vq]."""
        return self.language_model(self.embed(grid), rotation, attend)

    def logits(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Scores of the next grid row, f32: text [N, vocabulary], codes [N, n_vq, codes + 1].

        The pad code is never drawn: its score is -inf.
        """
        if self.audio_head is None:
            audio = torch.stack([head(hidden) for head in self.lm_heads[1:]], dim=1)
        else:
            audio = linear(hidden, self.audio_head).view(len(hidden), -1, self.audio_rows)
        audio = audio.float()
        audio[..., -1] = float("-inf")
        return self.lm_heads[0](hidden).float(), audio

    def fuse(self) -> DelayModel:
        """Lay tables and weights out for serving; values and tensor names stay as they are."""
        self.language_model.fuse()
        self.audio_table = self._share_storage(self.emb_ext)
        self.audio_head = self._share_storage(self.lm_heads[1:])
        offsets = torch.arange(len(self.emb_ext), device=self.audio_table.device)
        self.audio_offsets = offsets * self.audio_rows
        return self

    def _share_storage(self, modules: nn.ModuleList) -> Tensor:
        joint = torch.cat([module.weight.detach() for module in modules])
        for module, rows in zip(modules, joint.split(self.audio_rows), strict=True):
            module.weight = nn.Parameter(rows, requires_grad=False)
        return joint


def load_delay(
    directory: Path, *, device: str | torch.device = "cpu", dtype: torch.dtype | None = None
) -> DelayModel:
    """Load a checkpoint in the released format for serving.

    `dtype` None computes in float32; float16 overflows in released models and is refused with
    `ValueError`. Raises `CheckpointError` naming every tensor that is missing, unexpected or
    misshapen.
    """
    if dtype == torch.float16:
        raise ValueError(
            "float16 is too narrow for this model's hidden states; use bfloat16 or float32"
        )
    with torch.device("meta"):
        model = DelayModel(DelayConfig.from_json(read_json(directory, "config.json")))
    names = tensor_names(directory)
    renamed = {} if _TEXT_HEAD in names else {_TEXT_HEAD_ALIAS: _TEXT_HEAD}
    load_weights(
        model, directory, device=device, dtype=dtype, rename=lambda name: renamed.get(name, name)
    )
    return model.eval().fuse()
