"""Which model a checkpoint is, and what is recommended for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.api import Sampling, TextSampling
from engine.checkpoint import CheckpointError
from engine.hub import DEFAULT_MODEL_DIR
from engine.models.variants import VARIANTS, variant_of

VECTORS = Path(__file__).parents[2] / "vectors"

RECOMMENDED = {
    "realtime": (Sampling(0.8, 0.6, 30, 1.1, 50), None),
    "tts": (Sampling(1.7, 0.8, 25, 1.0, 0), TextSampling(1.5, 1.0, 50)),
    "ttsd": (Sampling(1.1, 0.9, 50, 1.1, 0), TextSampling(1.1, 0.9, 50)),
    "sound_effect": (Sampling(1.5, 0.6, 50, 1.2, 0), TextSampling(1.5, 1.0, 50)),
    "voice_generator": (Sampling(1.5, 0.6, 50, 1.1, 0), TextSampling(1.5, 1.0, 50)),
    "local": (Sampling(1.7, 0.8, 25, 1.0, 0), TextSampling(1.0, 1.0, 50)),
    "nano": (Sampling(0.8, 0.95, 25, 1.2, 0), TextSampling(1.0, 1.0, 50)),
}


def checkpoint(directory: Path, model_type: str, **settings: str) -> Path:
    """A directory with nothing but the beginning of a `config.json`."""
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps({"model_type": model_type, **settings}))
    return directory


def test_recommended_sampling() -> None:
    assert {
        name: (variant.sampling, variant.text_sampling) for name, variant in VARIANTS.items()
    } == RECOMMENDED


@pytest.mark.parametrize(
    ("directory", "name"),
    [
        (DEFAULT_MODEL_DIR, "realtime"),
        (VECTORS / "realtime" / "tiny", "realtime"),
        (VECTORS / "delay" / "tiny_a", "tts"),
        (VECTORS / "local_nano" / "local_v15" / "tiny", "local"),
        (VECTORS / "local_nano" / "nano" / "tiny", "nano"),
    ],
)
def test_the_model_type_says_which(directory: Path, name: str) -> None:
    assert variant_of(directory).name == name


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("MOSS-TTS", "tts"),
        ("MOSS-TTS-v1.5", "tts"),
        ("MOSS-TTSD-v1.0", "ttsd"),
        ("MOSS-SoundEffect", "sound_effect"),
        ("moss_voice_generator", "voice_generator"),
        ("models--OpenMOSS-Team--MOSS-TTSD-v1.0/snapshots/0a1b", "ttsd"),
        ("ttsd/MOSS-TTS", "tts"),
    ],
)
def test_delay_pattern_models_go_by_their_published_name(
    tmp_path: Path, folder: str, name: str
) -> None:
    assert variant_of(checkpoint(tmp_path / folder, "moss_tts_delay")).name == name


def test_a_copy_under_another_name_keeps_what_it_says_of_itself(tmp_path: Path) -> None:
    copy = checkpoint(tmp_path / "a", "moss_tts_delay", _name_or_path="x/MOSS-SoundEffect")
    assert variant_of(copy).name == "sound_effect"


def test_what_is_stated_counts_more_than_the_name(tmp_path: Path) -> None:
    directory = checkpoint(tmp_path / "MOSS-TTSD-v1.0", "moss_tts_delay")
    assert variant_of(directory, "voice_generator").name == "voice_generator"


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ("parrot", "no model variant 'parrot'; known: auto, realtime, tts"),
        ("nano", "holds no 'nano'; it may be: tts, ttsd, sound_effect, voice_generator"),
    ],
)
def test_what_cannot_be_is_named(tmp_path: Path, stated: str, message: str) -> None:
    directory = checkpoint(tmp_path / "model", "moss_tts_delay")
    with pytest.raises(CheckpointError, match=message):
        variant_of(directory, stated)


def test_a_checkpoint_of_another_family_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="holds a 'qwen3'; known model types: moss_tts_delay"):
        variant_of(checkpoint(tmp_path / "model", "qwen3"))
