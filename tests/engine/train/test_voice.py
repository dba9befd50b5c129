"""`make voice`: how it divides its time, and what it does with a folder that was begun before."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.train import voice
from engine.train.codec.run import CodecRecipe
from engine.train.packages import MissingPackages, require_packages
from engine.train.voice import Plan, main


def plan(minutes: float) -> Plan:
    return Plan.of(minutes, None, None, None)


@pytest.fixture
def made(monkeypatch) -> list[tuple[Path, Plan, int]]:
    """What would have been made."""
    calls: list[tuple[Path, Plan, int]] = []
    monkeypatch.setattr(voice, "require_packages", lambda: None)
    monkeypatch.setattr(voice.torch, "set_num_threads", lambda threads: None)
    monkeypatch.setattr(voice, "make_voice", lambda *arguments: calls.append(arguments))
    return calls


def test_a_long_run_is_nearly_all_training() -> None:
    codec, language = plan(300).training_minutes(cores=2)
    assert codec == language
    assert 250 < codec + language < 280
    assert plan(300).hours == 20
    assert plan(300).texts == 100


def test_ten_minutes_are_enough_for_a_little_of_everything() -> None:
    little = plan(10)
    codec, language = little.training_minutes(cores=2)
    assert 6 < codec + language < 8
    assert 0.5 <= little.hours <= 1
    assert 4 <= little.texts <= 8


@pytest.mark.parametrize("minutes", [1, 10, 60, 300, 3000])
def test_all_stages_take_about_the_minutes(minutes: float) -> None:
    whole = plan(minutes)
    training = sum(whole.training_minutes(cores=2))
    assert training >= 0.5 * minutes
    assert whole.hours <= 20
    speech_min = 60 * whole.hours
    rest = speech_min / 200 + speech_min / 100 + whole.texts * 10 / 60 + 1.5
    assert minutes <= training + rest + 1e-6
    if minutes >= 10:
        assert training + rest <= minutes + 1e-6


def test_fewer_cores_leave_less_time_to_train() -> None:
    assert sum(plan(100).training_minutes(1)) < sum(plan(100).training_minutes(8))


def test_what_is_given_counts() -> None:
    given = Plan.of(10, 0.2, 3, Path("other/codec"))
    assert given == Plan(minutes=10, hours=0.2, texts=3, codec="other/codec")


def test_the_model_speaks_no_more_codebooks_than_there_are() -> None:
    assert min(voice.SPOKEN_CODEBOOKS, CodecRecipe().codebooks) <= CodecRecipe().codebooks
    assert voice._halvings(4) == "1,2"
    assert voice._halvings(8) == "1,2,4"
    assert voice._halvings(1) == ""


def test_a_run_goes_on_by_its_own_plan_or_not_at_all(made, tmp_path, capsys) -> None:
    out = tmp_path / "voice"
    words = ["--out", str(out), "--threads", "1"]
    assert main([*words, "--minutes", "10"]) == 0
    assert main([*words, "--minutes", "10"]) == 0
    assert made == [(out, plan(10), 1)] * 2
    assert main([*words, "--minutes", "20"]) == 1
    assert len(made) == 2
    said = capsys.readouterr().err
    assert f"voice: {out} was begun with minutes 10.0, not 20.0, hours 0.9, not 1.8" in said
    assert "go on so, or name another folder" in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--minutes", "0"], "--minutes: 0 must be more than 0"),
        (["--minutes", "nan"], "--minutes: nan must be more than 0"),
        (["--hours", "-1"], "--hours: -1 must be more than 0"),
    ],
)
def test_no_time_is_refused(made, words: list[str], message: str, capsys) -> None:
    with pytest.raises(SystemExit):
        main(words)
    assert message in capsys.readouterr().err
    assert made == []


def test_a_full_disk_and_a_stop_say_how_to_go_on(made, monkeypatch, tmp_path, capsys) -> None:
    for error, status in ((OSError(28, "No space left"), 1), (KeyboardInterrupt(), 130)):

        def fail(*arguments, error=error) -> None:
            raise error

        monkeypatch.setattr(voice, "make_voice", fail)
        assert main(["--out", str(tmp_path), "--threads", "1"]) == status
        assert "run the same command again to go on" in capsys.readouterr().err


def test_a_stage_that_is_done_is_not_done_again(tmp_path: Path) -> None:
    done = []
    (tmp_path / "corpus").mkdir()

    def work() -> None:
        done.append(len(done))
        if len(done) == 1:
            raise OSError("killed")

    with pytest.raises(OSError, match="killed"):
        voice._once(tmp_path / "corpus", work)
    voice._once(tmp_path / "corpus", work)
    voice._once(tmp_path / "corpus", work)
    assert done == [0, 1]


def test_missing_packages_are_named_with_what_installs_them() -> None:
    with pytest.raises(MissingPackages, match=r"^nowhere_to_be_found missing: run `deploy/setup"):
        require_packages(["json", "nowhere_to_be_found"])
    require_packages(["json", "pathlib"])
