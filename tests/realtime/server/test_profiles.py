"""Profiles: those that ship are right, mistakes are named, and what was said last wins."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from engine.config import EngineConfig
from engine.hub import DEFAULT_CODEC_DIR, DEFAULT_MODEL_DIR
from engine.models.variants import VARIANTS
from realtime.server.config import ConfigError, ServerConfig, add_arguments, load_config
from realtime.server.profiles import models_to_load, profile_names, read_profile
from realtime.server.served_models import read_checkpoints

VECTORS = Path(__file__).parents[2] / "vectors"
DELAY = str(VECTORS / "delay" / "tiny_a")


def config(*flags: str, **environ: str) -> ServerConfig:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_arguments(parser)
    return load_config(vars(parser.parse_args(flags)), environ)


@pytest.fixture
def profile(tmp_path):
    def write(text: str) -> str:
        path = tmp_path / "mine.yaml"
        path.write_text(text)
        return str(path)

    return write


def test_there_is_a_profile_for_each_model():
    assert {read_profile(name)["variant"] for name in profile_names()} == set(VARIANTS)
    assert len(profile_names()) == len(VARIANTS)


@pytest.mark.parametrize("name", profile_names())
@pytest.mark.parametrize("tuning", ["", ":low-latency", ":high-concurrency"])
def test_shipped_profiles_are_settings_of_the_engine(name, tuning):
    [settings] = models_to_load(config("--profile", name + tuning))
    engine = EngineConfig(model_dir="m", codec_dir="c", **settings.engine)
    ramp = engine.chunk_ramp_frames or VARIANTS[settings.variant].chunk_ramp_frames
    assert ramp[0] == 1, "the first sound leaves with the first frame"
    assert engine.codec_slots >= engine.max_rows
    assert engine.codec_semantics == "exact"
    assert settings.model.startswith("OpenMOSS-Team/MOSS-")
    assert settings.codec.startswith("OpenMOSS-Team/MOSS-Audio-Tokenizer")


@pytest.mark.parametrize("name", profile_names())
def test_tunings_are_what_they_say(name):
    quick, many = (
        models_to_load(config("--profile", f"{name}:{tuning}"))[0].engine
        for tuning in ("low-latency", "high-concurrency")
    )
    assert quick["max_rows"] < many["max_rows"]
    assert max(quick["chunk_ramp_frames"]) < max(many["chunk_ramp_frames"])


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("max_row: 3", r"unknown key 'max_row' \(did you mean 'max_rows'\?\); known are model, "),
        ("colour: red", "unknown key 'colour'"),
        ("deterministic: true", "unknown key 'deterministic'"),
        ("max_rows: 0", "max_rows must be a whole number, at least 1, not 0"),
        ("max_rows: true", "max_rows must be a whole number, at least 1, not True"),
        ("max_rows: many", "max_rows must be a whole number, at least 1, not 'many'"),
        ("max_grid_rows: -1", "max_grid_rows must be a whole number, at least 0, not -1"),
        ("dtype: int8", "dtype must be one of auto, float32, bfloat16, float16, not 'int8'"),
        ("codec_semantics: rough", "codec_semantics must be one of exact, chunk_complete"),
        ("chunk_ramp_frames: []", "chunk_ramp_frames must be a list of whole numbers, each 1 to"),
        ("chunk_ramp_frames: [1, 16]", "each 1 to 15, not"),
        ("chunk_ramp_frames: 4", "must be a list"),
        ("model: 5", "model must be text, not 5"),
        ("tunings: [a]", "tunings must be NAME"),
        ("tunings: {a: 1}", "tuning a must be key: value, not 1"),
        ("tunings: {a: {name: x}}", "tuning a: unknown key 'name'"),
        ("tunings: {a: {max_rowz: 1}}", r"unknown key 'max_rowz' \(did you mean 'max_rows'\?\)"),
        ("- a", "must be `key: value` lines"),
        ("a: [", "cannot be read"),
    ],
)
def test_a_mistake_in_a_profile_is_named(profile, text, complaint):
    with pytest.raises(ConfigError, match=complaint):
        read_profile(profile(text))


def test_a_profile_or_tuning_that_is_not_there_is_named(profile):
    with pytest.raises(ConfigError, match=r"no profile 'mos-tts' \(did you mean 'moss-tts'\?\)"):
        read_profile("mos-tts")
    with pytest.raises(ConfigError, match="has no tuning 'fast'; it has: low-latency, high-"):
        read_profile("moss-tts:fast")
    with pytest.raises(ConfigError, match="has no tuning 'fast'; it has: none"):
        read_profile(profile("max_rows: 2") + ":fast")


def test_a_flag_or_variable_wins_over_a_profile(profile):
    spec = profile("max_rows: 3\ndtype: float16\nname: mine\nmodel: a/b\ncodec: c/d")
    [settings] = models_to_load(config("--profile", spec))
    assert (settings.engine["max_rows"], settings.engine["dtype"]) == (3, "float16")
    assert (settings.name, settings.model, settings.codec) == ("mine", "a/b", "c/d")
    [settings] = models_to_load(
        config("--profile", spec, "--max-rows", "5", MOSS_MODEL="x/y", MOSS_MODEL_NAME="yours")
    )
    assert (settings.engine["max_rows"], settings.engine["dtype"]) == (5, "float16")
    assert (settings.name, settings.model, settings.codec) == ("yours", "x/y", "c/d")


def test_a_flag_that_says_what_is_the_default_wins_too(profile):
    spec = profile("max_rows: 3\nmax_queued_rows: 5")
    [settings] = models_to_load(config("--profile", spec, "--max-rows", "16"))
    assert (settings.engine["max_rows"], settings.engine["max_queued_rows"]) == (16, 5)


def test_without_a_profile_the_shipped_voice_is_served():
    [settings] = models_to_load(config())
    assert (settings.model, settings.codec) == (str(DEFAULT_MODEL_DIR), str(DEFAULT_CODEC_DIR))
    [checkpoint] = read_checkpoints(config())
    assert checkpoint.name == "moss-tts-realtime"


def test_several_models_by_flags_and_by_variable():
    flags = ("--model", DELAY, "--model", DELAY, "--variant", "tts", "--variant", "ttsd")
    variables = {"MOSS_MODEL": f"{DELAY},{DELAY}", "MOSS_VARIANT": "tts,ttsd"}
    for several in (config(*flags), config(**variables)):
        assert [(one.name, one.speech.capabilities.title) for one in read_checkpoints(several)] == [
            ("moss-tts", "MOSS-TTS"),
            ("moss-ttsd", "MOSS-TTSD"),
        ]


def test_several_profiles_with_their_checkpoints():
    several = models_to_load(
        config(
            *("--profile", "moss-tts", "--profile", "moss-ttsd:low-latency"),
            *("--model", "a/1", "--model", "a/2", "--codec", "c/d"),
        )
    )
    assert [(one.model, one.codec, one.variant) for one in several] == [
        ("a/1", "c/d", "tts"),
        ("a/2", "c/d", "ttsd"),
    ]
    assert several[1].engine["max_rows"] == 2


def test_a_comma_in_a_directory_is_no_list(tmp_path):
    directory = tmp_path / "a,b"
    directory.mkdir()
    [settings] = models_to_load(config("--model", str(directory)))
    assert settings.model == str(directory)


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (("--model", "a/1", "--model", "a/2", "--variant", "tts"), "2 models and 1 times --var"),
        (("--profile", "moss-tts", "--model", "a/1", "--model", "a/2"), "1 models and 2 times"),
        (("--model", "a/1", "--codec", "c/1", "--codec", "c/2"), "1 models and 2 times --codec"),
    ],
)
def test_counts_must_agree(flags, complaint):
    with pytest.raises(ConfigError, match=complaint):
        models_to_load(config(*flags))


def test_two_models_of_one_name_are_refused():
    with pytest.raises(ConfigError, match="two models are called 'moss-tts'; give each"):
        read_checkpoints(config("--model", DELAY, "--model", DELAY))
