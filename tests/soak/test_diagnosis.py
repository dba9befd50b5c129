"""The diagnosis sees the model as the engine runs it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from engine.codec.codec import load_codec
from engine.hub import DEFAULT_CODEC_DIR, DEFAULT_MODEL_DIR, DEFAULT_VOICES_DIR
from engine.train.corpus.teacher import PHONEMES
from engine.train.evaluation.command import main
from engine.train.evaluation.diagnosis import (
    Diagnosis,
    collapsed,
    error_percent,
    read_heads,
    teacher_phonemes,
)
from engine.train.evaluation.in_process import EngineVoice
from engine.train.evaluation.references import read_references, reference_codes
from engine.train.evaluation.resynthesis import resynthesised
from engine.train.evaluation.speech import Line, cast, teacher_speech
from engine.train.language.helpers import Heads

pytestmark = pytest.mark.filterwarnings("default::DeprecationWarning")

LINE = Line("Good morning, how can I help?", "heart")
SPEAKER = ["--model", str(DEFAULT_MODEL_DIR), "--codec", str(DEFAULT_CODEC_DIR)]
SPEAKER += ["--voices", str(DEFAULT_VOICES_DIR)]


@pytest.fixture(scope="module")
def references():
    recordings = read_references(DEFAULT_VOICES_DIR)
    codec = load_codec(DEFAULT_CODEC_DIR)
    books = json.loads((DEFAULT_MODEL_DIR / "config.json").read_text())["rvq"]
    return reference_codes(recordings, DEFAULT_VOICES_DIR, codec, books)


@pytest.fixture(scope="module")
def diagnosis(references):
    return Diagnosis(DEFAULT_MODEL_DIR, load_codec(DEFAULT_CODEC_DIR), references)


def test_on_its_own_past_the_best_guess_is_what_the_engine_says(diagnosis, references) -> None:
    greedy = {"temperature": 0.0, "repetition_penalty": 1.0}
    voice = EngineVoice(
        DEFAULT_MODEL_DIR, DEFAULT_CODEC_DIR, references, sampling=greedy, threads=1
    )
    [reply] = voice.reply([LINE], [()], [3.0])
    codes = reply.turn.codes
    assert len(codes) > 10
    hidden = diagnosis.hidden(LINE, codes)
    with torch.inference_mode():
        guessed = diagnosis._model.depth(
            hidden, lambda _, logits: logits[:, : diagnosis._prompt.audio_pad].argmax(-1)
        )
    np.testing.assert_array_equal(guessed.numpy(), codes)


def test_true_codes_first_bring_the_sound_nearer_to_the_resynthesis(diagnosis) -> None:
    teacher = teacher_speech([LINE])
    books = diagnosis._prompt.n_vq
    [true] = resynthesised(load_codec(DEFAULT_CODEC_DIR), teacher, [books])[books]
    made = dict(diagnosis.own_rest(teacher))
    assert list(made) == list(range(books))
    errors = [float(np.square(made[kept][0].sound - true.sound).mean()) for kept in made]
    assert errors[books - 1] < errors[1] < errors[0]


def test_phonemes_are_a_sequence() -> None:
    labels = np.array([0, 0, 7, 7, 7, 0, 7, 9, 9, 0])
    assert collapsed(labels) == [7, 7, 9]
    assert collapsed(np.zeros(0, int)) == []
    assert error_percent([[1, 2, 3, 4]], [[1, 3, 5]]) == 50
    assert error_percent([[1], [2]], [[1], []]) == 50
    [said] = teacher_phonemes([LINE])
    assert 15 < len(said) < 60
    assert 0 not in said


def test_the_command_tells_each_part(tmp_path: Path) -> None:
    size = json.loads((DEFAULT_MODEL_DIR / "config.json").read_text())["language_config"]
    heads = Heads(size["hidden_size"])
    with torch.no_grad():  # it always says one thing
        heads.phonemes.weight.zero_()
        heads.phonemes.bias.view(-1, PHONEMES)[:, 5] = 1
    torch.save({"training": {"heads": heads.state_dict()}}, tmp_path / "state.pt")
    words = ["--stage", "diagnose", "--limit", "2", "--state", str(tmp_path / "state.pt")]
    assert main([*SPEAKER, *words, "--no-ceilings", "--out", str(tmp_path)]) == 0
    figures = json.loads((tmp_path / "evaluation.json").read_text())
    assert {"true first 0", "true first 1", "phonemes, true past"} <= figures.keys()
    assert 90 < figures["phonemes, own past"]["percent"] <= 100


def test_a_state_without_heads_is_refused(tmp_path: Path, capsys) -> None:
    torch.save({"training": {}}, tmp_path / "state.pt")
    with pytest.raises(ValueError, match=r"state\.pt has no heads"):
        read_heads(tmp_path / "state.pt")
    assert main(["--stage", "diagnose", "--url", "http://127.0.0.1:9"]) == 1
    assert capsys.readouterr().err


def test_lines_are_cast_with_the_sound_that_is_diagnosed() -> None:
    lines = cast(["One moment, please.", "Of course."], ["heart", "male"])
    again = teacher_phonemes(lines)
    assert again == teacher_phonemes(lines)
    assert again[0] != again[1]
