"""The shipped voice learns a speaker that it has never heard from twenty clips."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray
from safetensors.numpy import load_file

from engine.hub import DEFAULT_CODEC_DIR, DEFAULT_MODEL_DIR
from engine.train.corpus.sentences import sentences
from engine.train.corpus.speakers import SHIPPED, Speaker
from engine.train.corpus.teacher import SAMPLE_RATE, Teacher
from engine.train.evaluation.in_process import EngineVoice
from engine.train.evaluation.measure import Measures
from engine.train.evaluation.speech import Line, Said
from engine.train.evaluation.texts import held_out, read_texts
from engine.train.finetune.__main__ import main

pytestmark = pytest.mark.filterwarnings("default::DeprecationWarning")

NEW = Speaker("hoarse", pitch=0.72, formants=1.12, intonation=0.7, tilt_db_per_octave=2.5)
CLIPS = 20
LONGEST = 3.0  # times the teacher's length


def spoken(texts: Sequence[str]) -> list[Said]:
    """The texts as the new speaker says them."""
    teacher = Teacher()
    return [
        Said(Line(text, NEW.name), teacher.speak(text, NEW, seed).sound, SAMPLE_RATE)
        for seed, text in enumerate(texts)
    ]


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run on twenty clips of the new speaker, with default settings."""
    folder = tmp_path_factory.mktemp("finetune")
    texts = itertools.islice(sentences(7, held_out()), CLIPS)
    with (folder / "manifest.jsonl").open("w", encoding="utf-8") as manifest:
        for number, said in enumerate(spoken(list(texts))):
            soundfile.write(folder / f"{number}.wav", said.sound, said.rate_hz)
            entry = {"audio": f"{number}.wav", "text": said.line.text, "speaker": NEW.name}
            manifest.write(json.dumps(entry) + "\n")
    paths = ("--model", DEFAULT_MODEL_DIR, "--codec", DEFAULT_CODEC_DIR)
    data = ("--data", folder / "manifest.jsonl", "--out", folder / "out", "--threads", 1)
    assert main([str(word) for word in (*paths, *data)]) == 0
    return folder / "out"


def speech(
    model: Path, reference: Mapping[str, NDArray[np.uint16]], expected: Sequence[Said]
) -> list[Said]:
    voice = EngineVoice(model, DEFAULT_CODEC_DIR, reference, sampling={}, threads=1)
    lines = [one.line for one in expected]
    return voice.speak(lines, [LONGEST * one.length_s for one in expected])


def test_it_learns_a_new_speaker_and_forgets_no_words(tuned: Path) -> None:
    assert all(NEW.pitch != speaker.pitch for speaker in SHIPPED)
    expected = spoken(read_texts("agent"))
    codes = load_file(tuned / "voices" / "references.safetensors")
    reference = {name: array.astype(np.uint16) for name, array in codes.items()}
    measures = Measures(expected, expected, threads=1)
    before, after = (
        measures.of(speech(model, reference, expected), ends=True)
        for model in (DEFAULT_MODEL_DIR, tuned / "model")
    )
    print(json.dumps({"before": figures(before), "after": figures(after)}, indent=1))
    assert after["similarity"] > before["similarity"] + 0.02
    assert percent(after) < percent(before) + 2
    assert after["ended_plausibly"] > before["ended_plausibly"] - 0.05


def percent(measured: dict[str, Any]) -> float:
    return float(measured["word_error_rate"]["percent"])


def figures(measured: dict[str, Any]) -> dict[str, float]:
    names = ("similarity", "ended_plausibly")
    return {name: measured[name] for name in names} | {"word_error_rate": percent(measured)}
