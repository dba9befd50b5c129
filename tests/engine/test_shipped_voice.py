"""The shipped checkpoint says, to the code and the sample, what its golden file holds."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from engine import api
from engine.hub import DEFAULT_VOICES_DIR

GOLDEN = Path(__file__).parents[1] / "vectors" / "voice"
SENTENCES = json.loads((GOLDEN / "golden.json").read_text())


@pytest.mark.parametrize("name", SENTENCES)
def test_golden_sentence(harness, name):
    sentence, golden = SENTENCES[name], load_file(GOLDEN / "golden.safetensors")
    references = load_file(DEFAULT_VOICES_DIR / "references.safetensors")
    voice = references[sentence["voice"]].astype(np.uint16) if sentence["voice"] else None
    [log] = harness.finish(harness.open(sentence["text"], grid=harness.context(voice)))
    assert log.done.reason == "completed"
    np.testing.assert_array_equal(log.codes, golden[f"{name}.frames"][:-1])
    np.testing.assert_allclose(log.pcm[:, 0], golden[f"{name}.pcm"].reshape(-1), rtol=0, atol=1e-4)


def test_its_sampling_defaults_come_with_it(harness):
    defaults = harness.engine.parts.info.sampling_defaults
    assert (defaults.temperature, defaults.repetition_penalty) == (0.6, 1.0)
    assert defaults.top_k == api.Sampling().top_k
