"""`make voice MINUTES=10` from nothing: each stage leaves what it should, the result speaks."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import soundfile

ROOT = Path(__file__).parents[2]
STAGES = ("corpus", "codec", "evaluation/codec", "codes", "language", "voice")
EVALUATIONS = ("evaluation/agent", "evaluation/words")
WORDS = (sys.executable, "-m", "engine.train.voice", "--minutes", "10", "--out")


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that was killed once while the codec was learning."""
    out = tmp_path_factory.mktemp("voice") / "out"
    with subprocess.Popen([*WORDS, str(out)], cwd=ROOT) as run:
        while run.poll() is None and not (out / "codec/state.pt").is_file():
            time.sleep(0.01)
        run.send_signal(signal.SIGKILL)
        assert run.wait() == -signal.SIGKILL, "it ended before it had saved anything"
    subprocess.run([*WORDS, str(out)], cwd=ROOT, check=True)
    return out


def figures(folder: Path) -> list[dict[str, float]]:
    lines = (folder / "figures.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_every_stage_is_done_and_leaves_figures_and_a_plot(out: Path) -> None:
    assert [stage for stage in STAGES + EVALUATIONS if not (out / stage / "done").is_file()] == []
    for stage in ("corpus", "codec", "codes", "language"):
        assert figures(out / stage)[-1]["share"] == 1
        assert (out / stage / "figures.png").stat().st_size > 1000


def test_the_codec_went_on_where_it_was_killed(out: Path) -> None:
    lines = figures(out / "codec")
    steps = [line["steps"] for line in lines]
    again = [i for i in range(1, len(steps)) if lines[i]["spent_s"] < lines[i - 1]["spent_s"]]
    assert len(again) == 1  # its clock began anew once
    assert steps[again[0]] > 0.5 * steps[again[0] - 1]


def test_losses_fall(out: Path) -> None:
    for stage, names in (("codec", ["spectral", "heard"]), ("language", ["code1", "token", "end"])):
        lines = [line for line in figures(out / stage) if names[0] in line]
        for name in names:
            assert math.isfinite(lines[-1][name])
            assert lines[-1][name] < lines[0][name], (stage, name)


def test_it_is_measured_beside_its_ceilings(out: Path) -> None:
    measured = json.loads((out / "evaluation/codec/evaluation.json").read_text())
    assert {"teacher", "codec, first 1", "codec, first 2", "codec"} <= measured.keys()
    for texts in EVALUATIONS:
        measured = json.loads((out / texts / "evaluation.json").read_text())
        assert {"teacher", "codec", "speech"} <= measured.keys()
        assert measured["speech"]["real_time_factor"] > 0
        assert measured["teacher"]["word_error_rate"]["percent"] < 30


def test_it_speaks_through_the_engine(out: Path, tmp_path: Path) -> None:
    voice, said = out / "voice", tmp_path / "said.wav"
    paths = ("--model", voice / "model", "--codec", voice / "codec", "--voices", voice / "voices")
    words = ["say", "Good morning, how can I help?", "--voice", "male", "-o", said, *paths]
    command = [sys.executable, "-m", "realtime.server.cli", *map(str, words)]
    subprocess.run(command, cwd=ROOT, check=True)
    sound, rate_hz = soundfile.read(said)
    assert rate_hz == 24_000
    assert len(sound) > 0.2 * rate_hz
    assert abs(sound).max() > 0.01


def test_it_is_not_made_again(out: Path) -> None:
    started_s = (out / "voice/done").stat().st_mtime
    subprocess.run([*WORDS, str(out)], cwd=ROOT, check=True)
    assert (out / "voice/done").stat().st_mtime == started_s
