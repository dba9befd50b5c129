"""An exported voice is a folder that serves, and its golden file is what the engine says."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from engine.hub import DEFAULT_CODEC_DIR, DEFAULT_MODEL_DIR
from engine.train.corpus.speakers import SHIPPED
from engine.train.export import GOLDEN, LONGEST_GOLDEN_FRAMES, export_voice
from realtime.server.voice import CodecKey, Voice
from realtime.server.voice_files import read_builtin_voices
from tests.engine.harness import SHIPPED as CONFIG
from tests.engine.harness import Harness

pytestmark = pytest.mark.filterwarnings("default::DeprecationWarning")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export") / "voice"
    export_voice(DEFAULT_MODEL_DIR, DEFAULT_CODEC_DIR, folder)
    return folder


@pytest.fixture(scope="module")
def harness(exported: Path) -> Harness:
    paths = {name: str(exported / name) for name in ("model", "codec")}
    config = dataclasses.replace(CONFIG, model_dir=paths["model"], codec_dir=paths["codec"])
    return Harness(config)


@pytest.mark.parametrize("number", range(len(GOLDEN)))
def test_the_engine_says_what_the_golden_file_holds(
    exported: Path, harness: Harness, number: int
) -> None:
    golden = load_file(exported / "golden.safetensors")
    sentence = json.loads((exported / "golden.json").read_text())[str(number)]
    assert (sentence["voice"], sentence["text"]) == GOLDEN[number]
    wanted = golden[f"{number}.frames"]
    if sentence["ended"]:
        wanted = wanted[:-1]
    none = np.zeros((0, harness.prompt.n_vq), np.uint16)
    row = harness.open(
        sentence["text"],
        grid=golden[f"{number}.prompt_grid"].astype(np.int32),
        decoder_codes=none,
        generated=none,
        max_frames=LONGEST_GOLDEN_FRAMES,
    )
    [log] = harness.finish(row)
    np.testing.assert_array_equal(log.codes, wanted)
    np.testing.assert_allclose(
        log.pcm[:, 0], golden[f"{number}.pcm"].reshape(-1), rtol=0, atol=1e-4
    )


def test_the_server_finds_its_voices(exported: Path) -> None:
    books = json.loads((exported / "model/config.json").read_text())["rvq"]
    voices = read_builtin_voices(exported / "voices", CodecKey("", books))
    assert [voice.name for voice in voices] == [speaker.name for speaker in SHIPPED]
    assert all(isinstance(voice, Voice) and voice.ref_text for voice in voices)
