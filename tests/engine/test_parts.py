"""What an engine sets aside for a model: contexts as long as its config allows, codec memory."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from engine.models.variants import VARIANTS
from tests.engine.harness import SHIPPED, Harness, PromptHarness, write_random_codec
from tests.engine.test_global_local_engine import engine_of

TINY = Path(__file__).parents[1] / "vectors" / "delay" / "tiny_b"
AN_HOUR = 46_000
"""Grid rows: 45,000 frames, a prompt, and the rows in which the last frames run out."""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> tuple[Path, str]:
    """A tiny delay-pattern model that allows an hour, and a codec of its codebooks."""
    directory = tmp_path_factory.mktemp("model") / "tiny"
    shutil.copytree(TINY, directory)
    config = json.loads((TINY / "config.json").read_text())
    config["language_config"]["max_position_embeddings"] = AN_HOUR
    (directory / "config.json").write_text(json.dumps(config))
    return directory, write_random_codec(directory.parent / "codec", n_codebooks=32)


@pytest.mark.parametrize(
    ("variant", "asked", "longest"),
    [
        ("ttsd", 0, AN_HOUR),
        ("ttsd", 1000, 1000),
        ("ttsd", 2 * AN_HOUR, AN_HOUR),
        ("tts", 0, VARIANTS["tts"].max_grid_rows),
        ("tts", AN_HOUR, AN_HOUR),
    ],
)
def test_the_longest_context(variant, asked, longest, checkpoint):
    harness = PromptHarness(*checkpoint, variant=variant, max_grid_rows=asked, max_rows=1)
    assert harness.engine.parts.info.max_grid_rows == longest


def test_a_dialogue_is_no_longer_than_its_model_allows():
    harness = Harness(dataclasses.replace(SHIPPED, max_grid_rows=0))
    assert harness.engine.parts.info.max_grid_rows == VARIANTS["realtime"].max_grid_rows == 4096


@pytest.mark.parametrize("name", ["realtime", "local", "nano"])
def test_only_a_dialogue_keeps_sound_to_go_back_into(name):
    """Beside its window a ring has room for the longest chunk, and for what may be taken back."""
    harness = Harness() if name == "realtime" else engine_of(name)
    stream = harness.engine.parts.codec._stream
    config = stream._codec.config.decoder
    stages = [stage for stage in config if hasattr(stage, "window_tokens")]
    kept_frames = 15 + {"realtime": 50}.get(name, 0)
    assert [ring.capacity for ring in stream.pool.rings] == [
        stage.window_tokens + kept_frames * stage.tokens_per_frame for stage in stages
    ]
