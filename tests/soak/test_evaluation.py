"""The evaluation, on the teacher's speech, the shipped voice and a server that listens."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.hub import DEFAULT_CODEC_DIR, DEFAULT_MODEL_DIR, DEFAULT_VOICES_DIR
from engine.train.evaluation.command import main
from engine.train.evaluation.recogniser import Recogniser
from engine.train.evaluation.scoring import Scored, by_voice, score, word_error_rate
from engine.train.evaluation.similarity import VoicePrints, cosines
from engine.train.evaluation.speech import TEACHER_VOICES, Line, Said, cast, teacher_speech
from engine.train.evaluation.texts import read_texts
from realtime.server.cli import main as command_line

# Packages that only training needs still call what their own dependencies call old.
pytestmark = pytest.mark.filterwarnings("default::DeprecationWarning")

CHECKPOINT = ["--model", str(DEFAULT_MODEL_DIR), "--codec", str(DEFAULT_CODEC_DIR)]


@pytest.fixture(scope="module")
def teacher() -> list[Said]:
    return teacher_speech(cast(read_texts("agent")[:16], list(TEACHER_VOICES)))


def test_the_teacher_is_understood(teacher: list[Said]) -> None:
    recogniser = Recogniser()
    heard = [recogniser.hear([one.sound], one.rate_hz)[0] for one in teacher]
    scored = [score(one.line.text, text) for one, text in zip(teacher, heard, strict=True)]
    assert word_error_rate(scored).percent < 6


def test_silence_and_noise_are_no_words_of_a_text() -> None:
    noise = np.random.default_rng(0).normal(0, 0.1, 48_000).astype(np.float32)
    heard = Recogniser().hear([np.zeros(24_000, np.float32), noise], 24_000)
    assert all(score("Your order is ready.", text).errors >= 4 for text in heard)


def test_errors_are_counted_on_words_as_they_sound() -> None:
    assert score("It's two dollars.", "it is $2").errors == 0
    assert score("The river bank is near.", "The riverbank is near").errors == 0
    assert score("A lighthouse.", "a light house").errors == 0
    assert score("One moment, please.", "moment place now").errors == 3
    assert score("One moment, please.", "").errors == 3


def test_the_rate_is_of_all_words_with_an_interval_around_it() -> None:
    scored = [Scored("", "a", "", 10, 0)] * 30 + [Scored("", "b", "", 10, 5)] * 10
    rate = word_error_rate(scored)
    assert rate.percent == pytest.approx(12.5)
    assert 4 < rate.low < 12.5 < rate.high < 22
    assert {voice: one.percent for voice, one in by_voice(scored).items()} == {"a": 0, "b": 50}


def test_a_voice_is_most_like_itself(teacher: list[Said]) -> None:
    prints = VoicePrints()
    table = cosines(prints.of(teacher[:8], shortest_s=0), prints.of(teacher[8:], shortest_s=0))
    for voice, row in table.items():
        assert max(row, key=row.__getitem__) == voice, table
        assert row[voice] > 0.9


def test_little_sound_gives_no_voice_print(teacher: list[Said]) -> None:
    short = Said(Line("", "heart"), teacher[0].sound[:24_000], 24_000)
    assert VoicePrints().of([short]) == {}


def evaluated(out: Path, *arguments: str) -> dict[str, Any]:
    assert main([*arguments, "--out", str(out)]) == 0
    figures: dict[str, Any] = json.loads((out / "evaluation.json").read_text())
    return figures


def test_a_codec_is_measured_beside_the_teacher(tmp_path: Path) -> None:
    codec = ("--stage", "codec", "--codec", str(DEFAULT_CODEC_DIR))
    figures = evaluated(tmp_path, *codec, "--codebooks", "1", "--limit", "4", "--keep-sound")
    assert {"teacher", "codec", "codec, first 1"} <= figures.keys()
    rates = [
        figures[name]["word_error_rate"]["percent"]
        for name in ("teacher", "codec", "codec, first 1")
    ]
    assert rates == sorted(rates)
    assert len(list((tmp_path / "codec").glob("*.wav"))) == 4


def test_a_checkpoint_is_measured_through_the_engine(tmp_path: Path) -> None:
    figures = evaluated(
        tmp_path,
        *(*CHECKPOINT, "--voices", str(DEFAULT_VOICES_DIR), "--limit", "6", "--voice", "male"),
        *("--dialogue", "--no-ceilings", "--temperature", "0.5"),
    )
    speech = figures["speech"]
    assert 0 <= speech["ended_plausibly"] <= speech["ended"] <= 1
    assert speech["real_time_factor"] > 0
    assert speech["similarity_table"]["male"].keys() == {"male"}
    assert [row["text"] for row in speech["sentences"]] == read_texts("agent")[:6]
    texts = [row["text"] for row in figures["turn 3"]["sentences"]]
    assert texts == [read_texts("agent")[2], read_texts("agent")[5]]
    assert len(figures["dialogue"]["sentences"]) == len(figures["single"]["sentences"]) == 6


def test_the_command_line_measures_too(tmp_path: Path) -> None:
    words = ["evaluate", "--stage", "codec", "--codec", str(DEFAULT_CODEC_DIR), "--limit", "1"]
    with pytest.raises(SystemExit) as ended:
        command_line([*words, "--out", str(tmp_path)])
    assert ended.value.code == 0
    assert {"teacher", "codec"} <= json.loads((tmp_path / "evaluation.json").read_text()).keys()


def test_a_server_is_measured_as_a_client_hears_it(
    run_server: Callable[..., Any], tmp_path: Path
) -> None:
    server = run_server(script=None)
    figures = evaluated(tmp_path, "--url", server.base_url, "--limit", "4", "--no-ceilings")
    voices = {row["voice"] for row in figures["speech"]["sentences"]}
    assert voices == set(TEACHER_VOICES)
    assert figures["speech"]["real_time_factor"] > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name the checkpoint by --model and --codec, or a server by --url"),
        (["--stage", "codec"], "name the codec: --codec DIR"),
        ([*CHECKPOINT, "--texts", "nothing"], "'nothing' is no file"),
        ([*CHECKPOINT, "--voice", "bob"], "there is no voice 'bob'; there are heart, alto"),
        ([*CHECKPOINT, "--voices", "/dev"], "/dev has no NAME.wav"),
        ([*CHECKPOINT, "--limit", "2", "--dialogue", "--no-ceilings"], "a dialogue needs 3 texts"),
        (["--url", "http://127.0.0.1:9"], "no server answers at http://127.0.0.1:9"),
    ],
)
def test_a_mistake_is_explained(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 1
    assert message in capsys.readouterr().err
