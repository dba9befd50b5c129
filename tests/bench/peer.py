"""The model as a plain loop on transformers' own Qwen3 classes, one request at a time."""

from __future__ import annotations

import numpy as np
import torch
from transformers import DynamicCache, Qwen3Config, Qwen3Model

from engine.models.qwen3 import Qwen3Stack, StackConfig
from engine.models.realtime import RealtimeModel


class PlainLoop:
    """Same sizes and weights as `model`; top-k sampling with torch.multinomial."""

    def __init__(self, model: RealtimeModel) -> None:
        self.model = model
        self.backbone = _qwen3(model.config.backbone, model.language_model)
        self.depth = _qwen3(model.config.depth, model.local_transformer.model)

    @torch.inference_mode()
    def speak(self, context: np.ndarray, text_ids: list[int], frames: int) -> torch.Tensor:
        """Frames i64 [frames, n_vq] after a context grid, whatever ends come up on the way."""
        columns = context.shape[1]
        opening = np.full((12, columns), self.model.config.audio_pad)
        opening[:, 0] = text_ids[:12]
        opening[-1, 1] = self.model.config.audio_pad + 1
        grid = torch.from_numpy(np.concatenate([context, opening])).long()
        cache = DynamicCache()
        spoken = []
        for frame in range(frames):
            states = self.backbone(
                inputs_embeds=self.model.embed(grid)[None], past_key_values=cache, use_cache=True
            ).last_hidden_state
            spoken.append(self._frame(states[:, -1]))
            text = text_ids[12 + frame] if 12 + frame < len(text_ids) else 0
            grid = torch.cat([torch.tensor([text]), spoken[-1]])[None]
        return torch.stack(spoken)

    def _frame(self, x: torch.Tensor) -> torch.Tensor:
        local, cache, codes = self.model.local_transformer, DynamicCache(), []
        for codebook in range(local.n_vq):
            y = self.depth(
                inputs_embeds=x[None], past_key_values=cache, use_cache=True
            ).last_hidden_state
            logits = local.local_lm_heads[codebook](y[0, -1]) / 0.6
            best = logits.topk(30)
            codes.append(best.indices[torch.multinomial(best.values.softmax(-1), 1)])
            if codebook + 1 < local.n_vq:
                x = local.model.embed_tokens[codebook](codes[-1])
        return torch.cat(codes)


def _qwen3(config: StackConfig, stack: Qwen3Stack) -> Qwen3Model:
    peer = Qwen3Model(
        Qwen3Config(
            vocab_size=1,
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            num_key_value_heads=config.kv_heads,
            head_dim=config.head_dim,
            rms_norm_eps=config.rms_norm_eps,
            rope_theta=config.rope_theta,
            max_position_embeddings=config.max_positions,
        )
    )
    weights = {k: v for k, v in stack.state_dict().items() if not k.startswith("embed_tokens")}
    missing = peer.load_state_dict(weights, strict=False)
    assert missing.missing_keys == ["embed_tokens.weight"], missing
    assert not missing.unexpected_keys, missing
    return peer.eval()
