"""Servers for each model of the family: real prompts, and the fake engine with its sound."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from engine.api import TextSampling
from engine.fake import FAKE_MODEL, FakeScript
from engine.hub import DEFAULT_MODEL_DIR
from engine.models.speech_models import load_speech_model

VECTORS = Path(__file__).parents[2] / "vectors"
DELAY = VECTORS / "delay" / "tiny_a"
LOCAL = VECTORS / "local_nano" / "local_v15" / "tiny"
NANO = VECTORS / "local_nano" / "nano" / "tiny"
DIRECTORIES = {
    "realtime": DEFAULT_MODEL_DIR,
    **dict.fromkeys(("tts", "ttsd", "sound_effect", "voice_generator"), DELAY),
    "local": LOCAL,
    "nano": NANO,
}
STEREO = {"rate_hz": 48_000, "channels": 2, "samples_per_frame": 3_840}
SHAPES: dict[str, dict[str, int]] = {
    "local": STEREO | {"codebook_size": 48},
    "nano": STEREO | {"codebook_size": 40},
}


def family_server(
    variant: str, text_sampling_defaults: TextSampling | None = None, **script_settings: Any
) -> tuple[FakeScript, dict[str, Any]]:
    """The arguments of `run_server` for one model, under the name it is published by."""
    speech = load_speech_model(DIRECTORIES[variant], variant)
    can = speech.capabilities
    shape = SHAPES.get(variant, {}) | {"n_vq": speech.n_vq}
    model = dataclasses.replace(
        FAKE_MODEL,
        name=can.default_name,
        variant=variant,
        text_sampling_defaults=text_sampling_defaults,
        **shape,
    )
    script = FakeScript(model=model, text_is_fed=can.holds_dialogues, **script_settings)
    return script, {"model": str(DIRECTORIES[variant]), "variant": variant}
