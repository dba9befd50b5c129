"""MOSS-TTS-Local-Transformer-v1.5: a Qwen3 backbone; a head of its own decides when to stop.

Formulas and tensor names: the released checkpoint.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from engine.checkpoint import load_weights, read_json, tensor_names
from engine.models.depth import embedding_table
from engine.models.global_local import GlobalLocalConfig, GlobalLocalModel
from engine.models.qwen3 import Attend, Qwen3Stack, StackConfig

_STOP_HEAD = "local_text_lm_head.weight"
_FULL_VOCABULARY = frozenset({None, "full_vocab", "full", "full-vocab", "vocab"})


class LocalBackbone(Qwen3Stack):
    """The Qwen3 stack and its text embeddings."""

    def __init__(self, config: StackConfig, text_vocabulary: int) -> None:
        super().__init__(config)
        self.embed_tokens = embedding_table(text_vocabulary, config.hidden_size)


class LocalModel(GlobalLocalModel):
    """Code 0 is drawn from the hidden state that also decided; the decision itself is not fed.

    Without a stop head of its own (`has_stop_head` False) the two text embeddings serve as one.
    """

    decision_is_fed = False

    def __init__(self, config: GlobalLocalConfig, *, has_stop_head: bool = True) -> None:
        super().__init__(config)
        self.transformer = LocalBackbone(config.backbone, config.text_vocabulary)
        self.local_text_lm_head: nn.Linear | None = None
        if has_stop_head:
            self.local_text_lm_head = nn.Linear(config.local.hidden_size, 2, bias=False)

    @property
    def text_embedding(self) -> nn.Embedding:
        return self.transformer.embed_tokens

    def run_backbone(self, x: Tensor, rotation: Tensor, attend: Attend) -> Tensor:
        return self.transformer(x, rotation, attend)

    def stop_logits(self, y: Tensor) -> Tensor:
        if self.local_text_lm_head is not None:
            return self.local_text_lm_head(y)
        embeddings, config = self.text_embedding.weight, self.config
        return linear(y, torch.stack([embeddings[config.continue_id], embeddings[config.stop_id]]))

    def fuse(self) -> LocalModel:
        super().fuse()
        self.transformer.fuse()
        return self


def local_config(config: dict[str, Any]) -> GlobalLocalConfig:
    """Read `config.json`. Raises `ValueError` naming a setting that is not supported."""
    section = dict(config.get("qwen3_config") or config["language_config"])
    rope = section.get("rope_parameters") or section.get("rope_scaling") or {}
    if "rope_theta" not in section and "rope_theta" not in rope:
        section["rope_theta"] = 1e6
    return GlobalLocalConfig.from_json(
        config, StackConfig.from_json(section), section["vocab_size"]
    )


def load_local(
    directory: Path, *, device: str | torch.device = "cpu", dtype: torch.dtype | None = None
) -> LocalModel:
    """Load a checkpoint in the released format for serving.

    `dtype` None computes in float32. Raises `CheckpointError` naming every tensor that is missing,
    unexpected or misshapen. Output heads, stored or not, are the input tables.
    """
    settings = read_json(directory, "config.json")
    config = local_config(settings)
    mode = settings.get("local_text_head_mode")
    if mode != "binary" and mode not in _FULL_VOCABULARY:
        raise ValueError(f"local_text_head_mode {mode!r} is unknown; known: binary, full_vocab")
    has_stop_head = mode == "binary" and _STOP_HEAD in tensor_names(directory)
    with torch.device("meta"):
        model = LocalModel(config, has_stop_head=has_stop_head)
    optional = config.tied | {_STOP_HEAD}
    load_weights(model, directory, device=device, dtype=dtype, optional=optional)
    return model.eval().fuse()
