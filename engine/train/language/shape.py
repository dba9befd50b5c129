"""The shape of the small voice's language model, new or saved, in the released format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import nn

from engine.models.realtime import RealtimeConfig, RealtimeModel
from engine.train.language.vocabulary import SYSTEM

WIDTH = 256
BACKBONE_LAYERS, DEPTH_LAYERS = 6, 2
INITIAL_STD = 0.02
PREFILL_TEXT_TOKENS = 12


def write_settings(
    directory: Path, tokenizer: Tokenizer, codebooks: int, codebook_size: int
) -> None:
    """Write everything but the weights: config, tokenizer settings, processor, sampling."""
    special = {name: tokenizer.token_to_id(name) for name in _SPECIAL}
    stack = {
        "hidden_size": WIDTH,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000,
        "attention_bias": False,
    }
    files: dict[str, dict[str, Any]] = {
        "config.json": {
            "architectures": ["MossTTSRealtime"],
            "model_type": "moss_tts_realtime",
            "rvq": codebooks,
            "audio_pad_token": codebook_size,
            "audio_vocab_size": codebook_size + 3,
            "reference_audio_pad": special["<|audio_pad|>"],
            "text_pad": special["<|text_pad|>"],
            "initializer_range": INITIAL_STD,
            "dtype": "bfloat16",
            "language_config": stack
            | {
                "model_type": "qwen3",
                "vocab_size": tokenizer.get_vocab_size(),
                "intermediate_size": 3 * WIDTH,
                "num_hidden_layers": BACKBONE_LAYERS,
                "max_position_embeddings": 4096,
                "tie_word_embeddings": False,
                "bos_token_id": special["<|endoftext|>"],
                "eos_token_id": special["<|im_end|>"],
            },
            "local_config": stack
            | {
                "model_type": "moss_tts_realtime_local_transformer",
                "intermediate_size": 2 * WIDTH,
                "num_hidden_layers": DEPTH_LAYERS,
                "rope_type": "linear",
                "max_position_embeddings": 33,
                "pad_token_id": codebook_size,
            },
        },
        "processor_config.json": {
            "processor_class": "MossTTSRealtimeProcessor",
            "audio_pad_token": "<|audio_pad|>",
            "text_pad_token": "<|text_pad|>",
            "tts_system_prompt": f"<|im_start|>system\n{SYSTEM}<|im_end|>\n",
            "channels": codebooks,
            "audio_channel_pad": codebook_size,
            "audio_bos_token": codebook_size + 1,
            "audio_eos_token": codebook_size + 2,
            "delay_tokens_len": PREFILL_TEXT_TOKENS,
        },
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": 4096,
            "pad_token": "<|endoftext|>",
            "eos_token": "<|im_end|>",
            "additional_special_tokens": list(_SPECIAL[1:]),
        },
    }
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    for name, content in files.items():
        text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
        (directory / name).write_text(text, encoding="utf-8")


_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|audio_pad|>", "<|text_pad|>")


def new_model(settings: Path) -> RealtimeModel:
    """A model of random weights, ready to train; see `write_settings`."""
    config = json.loads((settings / "config.json").read_text(encoding="utf-8"))
    model = RealtimeModel(RealtimeConfig.from_json(config))
    model.requires_grad_(True)
    for name, weight in model.named_parameters():
        if weight.ndim < 2:
            continue
        nn.init.normal_(weight, std=INITIAL_STD)
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            # What is added to the residual stream, so that its size does not grow with the depth.
            with torch.no_grad():
                weight.mul_((2 * BACKBONE_LAYERS) ** -0.5)
    for table in model.embed_tokens[1:]:
        table.padding_idx = model.config.audio_pad
        nn.init.zeros_(table.weight[model.config.audio_pad])
    return model.train()
