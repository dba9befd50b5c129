"""Speakers that do not exist: who says what, what they sound like, how requests name them."""

from __future__ import annotations

import io
import wave
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from engine.api import Encode
from realtime.bench.__main__ import main
from realtime.bench.references import RATE_HZ, recording, speakers_of

if TYPE_CHECKING:
    from tests.running_server import RunningServer


def test_the_usual_data_set_has_666_speakers_who_come_again() -> None:
    said = speakers_of("mixed", 1088, seed=20261)
    assert said is not None
    firsts = [said.index(speaker) for speaker in range(666)]
    assert firsts == sorted(firsts)  # each is introduced after the one before
    assert set(said) == set(range(666))
    repeats = [place for place in range(1088) if said[place] in said[:place]]
    assert len(repeats) == 422
    assert said == speakers_of("mixed", 1088, seed=20261) != speakers_of("mixed", 1088, seed=1)


def test_speakers_are_new_in_each_request_of_each_round() -> None:
    rounds = [speakers_of("cold", 5, 1, number) for number in (0, 1)]
    assert len({speaker for said in rounds for speaker in said or ()}) == 10
    assert speakers_of("none", 5, 1) is None


def test_recordings_differ_in_content_and_length() -> None:
    made = [recording(speaker) for speaker in range(40)]
    assert recording(7) == made[7]
    assert len(set(made)) == 40
    lengths_s = []
    for data in made:
        with wave.open(io.BytesIO(data)) as file:
            assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (
                RATE_HZ,
                1,
                2,
            )
            samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")
        assert 8000 < np.abs(samples.astype(np.int32)).max() < 32767
        lengths_s.append(len(samples) / RATE_HZ)
    assert min(lengths_s) >= 1.0
    assert max(lengths_s) <= 30.0
    assert sum(2 <= length_s <= 10 for length_s in lengths_s) >= 34


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tier", "encoded"),
    [("mixed", 1 + 4), ("cold", 1 + 12), ("hot", 1 + 12), ("registered", 1 + 12)],
)
def test_each_tier_encodes_as_often_as_it_says(
    running_server: RunningServer, tmp_path: Path, capsys: Any, tier: str, encoded: int
) -> None:
    before = set(running_server.services.voices.names())
    flags = ["--endpoint", "speech", "--references", tier, "--requests", "6", "--rounds", "2"]
    flags += ["--warm-up", "1", "--sized", "--sse", "--out", str(tmp_path)]
    assert main(["closed-loop", "--server", running_server.base_url, *flags]) == 0
    summary = (tmp_path / "report.json").read_text()
    assert '"asked": 12' in summary
    assert '"ok": 12' in summary
    sent = [command for _, command in running_server.engine.log if isinstance(command, Encode)]
    assert sum(command.end for command in sent) == encoded
    assert set(running_server.services.voices.names()) == before
    capsys.readouterr()


def test_a_service_level_that_is_none_is_refused(tmp_path: Path, capsys: Any) -> None:
    for level, complaint in (
        ("ttf=1", "'ttf' is not one of ttfa_ms"),
        ("rtf=x", "number, not 'x'"),
    ):
        with pytest.raises(SystemExit):
            main(["burst", "--server", "x", "--out", str(tmp_path), "--slo", level])
        assert complaint in capsys.readouterr().err


def test_a_flag_of_speech_is_refused_for_the_socket(tmp_path: Path, capsys: Any) -> None:
    flags = ["--server", "http://127.0.0.1:1", "--out", str(tmp_path)]
    for wrong in (["--references", "cold"], ["--sse"], ["--extra", '{"a": 1}']):
        with pytest.raises(SystemExit):
            main(["burst", *flags, *wrong])
        assert f"{wrong[0]} needs --endpoint speech" in capsys.readouterr().err
    for bad in ("[1]", "{"):
        with pytest.raises(SystemExit):
            main(["burst", *flags, "--endpoint", "speech", "--extra", bad])
        assert "JSON" in capsys.readouterr().err
