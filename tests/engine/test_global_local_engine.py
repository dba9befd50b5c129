"""The engine speaks MOSS-TTS-Local-Transformer and MOSS-TTS-Nano: the golden frames."""

import dataclasses

import numpy as np
import pytest

from engine import api
from engine.engine import Engine
from tests.engine.harness import SHIPPED, Harness, write_random_codec
from tests.engine.models.global_local import DIRECTORIES, GREEDY, Family, family

CASES = {"local": ("plain_zh_lang", "clone_one_ref"), "nano": ("clone_en",)}


class PromptHarness(Harness):
    """A real engine with a tiny model and a random codec of its codebooks."""

    def __init__(self, tiny: Family, codec_dir) -> None:
        self.rows, self.others, self.next_row = {}, [], 1
        model_dir = str(DIRECTORIES[tiny.name] / "tiny")
        config = dataclasses.replace(
            SHIPPED, model_dir=model_dir, codec_dir=codec_dir, max_grid_rows=512
        )
        self.engine = Engine(config, self._take)
        self.nothing = np.zeros((0, tiny.model.config.n_vq), np.uint16)

    def speak(self, grid, **changes):
        fields = {
            "sampling": GREEDY,
            "decoder_codes": self.nothing,
            "generated": self.nothing,
        }
        return self.open(grid=grid, **{**fields, **changes})


@pytest.fixture(scope="module", params=["local", "nano"])
def tiny(request):
    return family(request.param)


@pytest.fixture(scope="module")
def harness(tiny, tmp_path_factory):
    n_vq = tiny.model.config.n_vq
    directory = tmp_path_factory.mktemp(tiny.name) / "codec"
    return PromptHarness(tiny, write_random_codec(directory, n_codebooks=n_vq))


def test_replies_equal_the_golden_ones(tiny, harness):
    golden, cases = tiny.vectors("greedy"), CASES[tiny.name]
    rows = [harness.speak(tiny.prompt(case)) for case in cases]
    for case, log in zip(cases, harness.finish(*rows), strict=True):
        np.testing.assert_array_equal(log.codes, golden[f"{case}.frames"].numpy())
        samples = harness.engine.parts.info.samples_per_frame
        assert len(log.pcm) == len(log.codes) * samples
        assert log.done.reason == "completed"
    assert not any(harness.leftovers().values())


def test_a_grid_that_is_no_prompt_is_refused(tiny, harness):
    [log] = harness.finish(harness.speak(tiny.prompt(CASES[tiny.name][0])[:-1]))
    [refused] = log.of(api.Refused)
    assert refused.code == "bad_grid"
    assert "a prompt ends with the start of sound" in refused.message
