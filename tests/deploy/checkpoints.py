"""Tiny checkpoints of each model in the released format, with codecs of random weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from engine.codec.codec import AudioCodec
from engine.codec.config import CodecConfig
from tests.engine.harness import write_random_codec

VECTORS = Path(__file__).parents[1] / "vectors"
DELAY = VECTORS / "delay" / "tiny_a"
MODEL_DIRS = {
    "moss-tts-realtime": VECTORS / "realtime" / "tiny",
    **dict.fromkeys(("moss-tts", "moss-ttsd", "moss-soundeffect", "moss-voicegenerator"), DELAY),
    "moss-tts-local": VECTORS / "local_nano" / "local_v15" / "tiny",
    "moss-tts-nano": VECTORS / "local_nano" / "nano" / "tiny",
}
STEREO_CODECS = {"moss-tts-local": ("v2", 48), "moss-tts-nano": ("nano", 40)}
_WIDER = 40  # the tiny codecs' 1,200 Hz times this are the released 48 kHz


def write_codecs(directory: Path) -> dict[str, str]:
    """A codec for each model: 24 kHz mono for most, 48 kHz stereo for those that speak it."""
    mono = write_random_codec(directory / "mono")
    codecs = dict.fromkeys(MODEL_DIRS, mono)
    for name, (family, codebook_size) in STEREO_CODECS.items():
        codecs[name] = _write_stereo_codec(directory / name, family, codebook_size)
    return codecs


def _write_stereo_codec(directory: Path, family: str, codebook_size: int) -> str:
    config = json.loads((VECTORS / "codec" / family / "tiny" / "config.json").read_text())
    config |= {"sample_rate": 48_000, "sampling_rate": 48_000, "downsample_rate": 3_840}
    config["quantizer_kwargs"]["codebook_size"] = codebook_size
    _widen(config["encoder_kwargs"][0], config["encoder_kwargs"][1], "input_dimension")
    _widen(config["decoder_kwargs"][-1], config["decoder_kwargs"][-2], "output_dimension")
    torch.manual_seed(0)
    codec = AudioCodec(CodecConfig.from_json(config))
    for name, parameter in codec.named_parameters():
        is_gain = name.endswith("norm1.weight") or name.endswith("norm2.weight")
        torch.nn.init.normal_(parameter, mean=float(is_gain), std=0.05)
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps(config))
    weights = {name: tensor.contiguous() for name, tensor in codec.state_dict().items()}
    save_file(weights, directory / "model.safetensors")
    return str(directory)


def _widen(patch: dict[str, Any], transformer: dict[str, Any], side: str) -> None:
    """Let a patch take so many more samples."""
    patch["patch_size"] *= _WIDER
    transformer[side] *= _WIDER
