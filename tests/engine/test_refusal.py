"""What cannot be opened is refused, with its place and what the model takes; never clamped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from engine import api
from engine.checkpoint import CheckpointError
from tests.engine.harness import Harness, PromptHarness, write_random_codec
from tests.engine.models.global_local import DIRECTORIES, VECTORS, family
from tests.engine.test_global_local_engine import CODECS, engine_of

TINY_DELAY = VECTORS / "delay" / "tiny_a"


class Model:
    """An engine and a prompt that it takes; frames hold codes below `frame_codes`."""

    def __init__(self, harness: Harness, grid: np.ndarray, frame_codes: int) -> None:
        self.harness, self.grid, self.frame_codes = harness, grid, frame_codes
        self.n_vq = harness.engine.parts.info.n_vq

    def frames(self, count: int = 3) -> np.ndarray:
        return np.zeros((count, self.n_vq), np.uint16)

    def refusal(self, **changes) -> tuple[str, str]:
        """Code and message with which a prompt is refused that would be taken but for `changes`."""
        fields = {"grid": self.grid, "decoder_codes": self.frames(0), "generated": self.frames(0)}
        [log] = self.harness.finish(self.harness.open(**{**fields, **changes}))
        [refused] = log.events
        assert isinstance(refused, api.Refused)
        return refused.code, refused.message


def realtime(_: Path) -> Model:
    harness = Harness()
    return Model(harness, harness.context(), frame_codes=1027)


def delay(directory: Path) -> Model:
    harness = PromptHarness(TINY_DELAY, write_random_codec(directory, n_codebooks=8))
    prompts = load_file(VECTORS / "delay" / "prompts.safetensors")
    return Model(harness, prompts["tts_clone_a.input_ids"][0].astype(np.int32), frame_codes=1024)


def local(_: Path) -> Model:
    return Model(engine_of("local"), family("local").prompt("clone_one_ref"), frame_codes=48)


def nano(_: Path) -> Model:
    return Model(engine_of("nano"), family("nano").prompt("clone_en"), frame_codes=40)


ALL: list[Callable[[Path], Model]] = [realtime, delay, local, nano]


@pytest.fixture(scope="module", params=ALL, ids=lambda make: make.__name__)
def model(request, tmp_path_factory) -> Model:
    return request.param(tmp_path_factory.mktemp("codec"))


def test_a_code_out_of_range_in_the_prompt(model):
    grid = model.grid.copy()
    grid[2, 3] = model.frame_codes + 1
    code, message = model.refusal(grid=grid)
    assert code == "bad_grid"
    assert message.startswith("codes are 0..")
    assert message.endswith(f"..{model.frame_codes + 1}")


def test_a_prompt_of_another_width(model):
    code, message = model.refusal(grid=model.grid[:, :-1])
    assert code == "bad_grid"
    assert f"a grid has {1 + model.n_vq} columns; this one is [" in message


def test_a_code_out_of_range_in_the_frames_to_go_on_from(model):
    frames = model.frames()
    frames[1, 2] = model.frame_codes
    code, message = model.refusal(decoder_codes=frames)
    assert code == "bad_grid"
    assert message == (
        f"code {model.frame_codes} of decoder_codes, frame 1, codebook 2, "
        f"is outside 0..{model.frame_codes - 1}"
    )


@pytest.mark.parametrize("wrong", [lambda f: f[:, :-1], lambda f: f[0], lambda f: f + 0.5])
def test_frames_of_another_shape_or_kind(model, wrong):
    code, message = model.refusal(decoder_codes=wrong(model.frames()))
    assert code == "bad_grid"
    assert f"expected whole numbers [F, {model.n_vq}]" in message


@pytest.mark.parametrize("n_vq", [0, 99])
def test_codebooks_that_no_model_has(model, n_vq):
    code, message = model.refusal(n_vq=n_vq)
    assert code == "bad_n_vq"
    assert f"{model.n_vq} here, not {n_vq}" in message


@pytest.mark.parametrize("make", [realtime, delay, local], ids=lambda make: make.__name__)
def test_only_some_models_do_with_fewer_codebooks(make, tmp_path):
    model = make(tmp_path)
    few = model.n_vq - 1
    assert model.refusal(n_vq=few) == ("bad_n_vq", f"n_vq is {model.n_vq} here, not {few}")


def test_a_reference_has_as_many_codebooks_as_the_reply(tmp_path):
    model = nano(tmp_path)
    code, message = model.refusal(n_vq=8)
    assert code == "bad_grid"
    assert "has codes of codebooks [0, 1, 2" in message
    assert "a frame has the first 8" in message


@pytest.mark.parametrize("make", [local, nano], ids=lambda make: make.__name__)
def test_a_frame_with_a_hole_is_named(make, tmp_path):
    model = make(tmp_path)
    grid = model.grid.copy()
    row = int((grid[:, 1] != model.frame_codes).argmax())
    grid[row, 2] = model.frame_codes  # the pad
    code, message = model.refusal(grid=grid)
    assert code == "bad_grid"
    assert message.startswith(f"grid row {row} has codes of codebooks [0, 2, 3")


def test_a_codec_with_fewer_codes_than_the_model_is_refused():
    with pytest.raises(CheckpointError, match=r"speaks codes 0\.\.1023, the codec .* only 0\.\.63"):
        PromptHarness(TINY_DELAY, CODECS["local"])


def test_a_codec_with_fewer_codebooks_than_the_model_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match=r"speaks 12 codebooks, the codec in .* has only 8"):
        PromptHarness(
            DIRECTORIES["local"] / "tiny", write_random_codec(tmp_path / "codec", n_codebooks=8)
        )
