"""MOSS-TTS-Nano: a GPT-2 style backbone; two rows of the text table decide when to stop.

Formulas and tensor names: the released checkpoint.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from engine.checkpoint import load_weights, read_json
from engine.models.depth import embedding_table
from engine.models.global_local import GlobalLocalConfig, GlobalLocalModel
from engine.models.gpt2 import GPT2Config, GPT2Stack
from engine.models.qwen3 import Attend

UNUSED_TENSORS = frozenset({"local_transformer.wte.weight"})
"""In some checkpoints, never read by the model."""


class NanoBackbone(GPT2Stack):
    """The GPT-2 stack and its text embeddings."""

    def __init__(self, config: GPT2Config, text_vocabulary: int) -> None:
        super().__init__(config)
        self.wte = embedding_table(text_vocabulary, config.hidden_size)


class NanoModel(GlobalLocalModel):
    """The decision is fed to the local transformer, which then draws code 0."""

    decision_is_fed = True

    def __init__(self, config: GlobalLocalConfig) -> None:
        super().__init__(config)
        self.transformer = NanoBackbone(config.backbone, config.text_vocabulary)

    @property
    def text_embedding(self) -> nn.Embedding:
        return self.transformer.wte

    def run_backbone(self, x: Tensor, rotation: Tensor, attend: Attend) -> Tensor:
        return self.transformer(x, rotation, attend)

    def stop_logits(self, y: Tensor) -> Tensor:
        embeddings, config = self.text_embedding.weight, self.config
        return linear(y, torch.stack([embeddings[config.continue_id], embeddings[config.stop_id]]))

    def fuse(self) -> NanoModel:
        super().fuse()
        return self


def nano_config(config: dict[str, Any]) -> GlobalLocalConfig:
    """Read `config.json`. Raises `ValueError` naming a setting that is not supported."""
    architecture = config.get("model_architecture", "global_local_transformer")
    if architecture != "global_local_transformer":
        raise ValueError(
            f"model_architecture {architecture!r} is not supported; known: global_local_transformer"
        )
    section = config["gpt2_config"]
    vocabulary = config.get("vocab_size", section.get("vocab_size"))
    return GlobalLocalConfig.from_json(config, GPT2Config.from_json(section), vocabulary)


def load_nano(
    directory: Path, *, device: str | torch.device = "cpu", dtype: torch.dtype | None = None
) -> NanoModel:
    """Load a checkpoint in the released format for serving.

    `dtype` None computes in float32. Raises `CheckpointError` naming every tensor that is missing,
    unexpected or misshapen. Output heads, stored or not, are the input tables.
    """
    config = nano_config(read_json(directory, "config.json"))
    with torch.device("meta"):
        model = NanoModel(config)
    optional = config.tied | UNUSED_TENSORS
    load_weights(model, directory, device=device, dtype=dtype, optional=optional)
    return model.eval().fuse()
