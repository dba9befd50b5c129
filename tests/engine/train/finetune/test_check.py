"""Every clip that cannot be used is named, with the reason, and nothing else is lost."""

import json

import numpy as np
import pytest

from engine.train.finetune.check import LEAST_CLIPS, Target, check
from engine.train.finetune.manifest import ManifestError, read_manifest
from engine.train.finetune.sound import read_recording
from tests.engine.train.finetune.recordings import (
    CODEC,
    MODEL,
    TEXT,
    babble,
    good_clips,
    write,
    write_manifest,
)

SPOKEN = babble(3)


@pytest.fixture(scope="module")
def target():
    return Target.of(MODEL, CODEC)


@pytest.fixture
def report_of(tmp_path, target):
    def report_of(*lines):
        return check(*read_manifest(write_manifest(tmp_path, list(lines))), target)

    return report_of


def silence(seconds, rate_hz=24_000):
    return np.zeros(int(seconds * rate_hz), np.float32)


BAD_SOUND = {
    "0.1 s": (babble(0.1), "0.10 s long"),
    "ten minutes": (np.tile(babble(10), 60), "longer than 120 s"),
    "silent": (silence(2), "silent"),
    "clipped": (np.clip(babble(3) * 20, -1, 1), "clipped"),
}


@pytest.mark.parametrize("name", BAD_SOUND)
def test_a_recording_that_cannot_be_used(report_of, tmp_path, name):
    sound, why = BAD_SOUND[name]
    write(tmp_path / "bad.wav", sound)
    report = report_of({"audio": "bad.wav", "text": TEXT}, *good_clips(tmp_path, 5))
    [unusable] = report.unusable
    assert (unusable.line, len(report.usable)) == (1, 5)
    assert why in unusable.why
    assert "bad.wav" in report.text()
    assert unusable.why in report.text()


def test_a_missing_file_and_one_that_holds_no_sound(report_of, tmp_path):
    (tmp_path / "notes.wav").write_text("not sound")
    (tmp_path / "folder.wav").mkdir()
    names = ("missing.wav", "notes.wav", "folder.wav")
    report = report_of(*({"audio": name, "text": TEXT} for name in names))
    missing, unreadable, folder = (one.why for one in report.unusable)
    assert "there is no file" in missing
    assert "missing.wav" in missing
    assert "cannot be read as WAV, FLAC, MP3 or Ogg" in unreadable
    assert "not a file" in folder
    assert not report.enough


@pytest.mark.parametrize(
    ("text", "seconds", "why"),
    [
        ("", 3, "text is empty"),
        (" \n", 3, "text is empty"),
        ("...", 3, "nothing in its text '...' can be said"),
        ("one two three four five", 60, "far too long for its text"),
        ("several words " * 50, 1, "cannot be said in 1.0 s"),
        ("今天天气怎么样我们一起去公园散步吧", 1, "cannot be said in 1.0 s"),
    ],
)
def test_a_text_that_does_not_fit_its_sound(report_of, tmp_path, text, seconds, why):
    write(tmp_path / "a.wav", babble(seconds))
    [unusable] = report_of({"audio": "a.wav", "text": text}).unusable
    assert why in unusable.why


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("Yes.", 0.5), (TEXT, 2), ("word " * 30, 10), ("今天天气怎么样", 2), ("2026", 2)],
)
def test_a_text_that_fits(report_of, tmp_path, text, seconds):
    write(tmp_path / "a.wav", babble(seconds))
    assert report_of({"audio": "a.wav", "text": text}).unusable == ()


def test_stereo_at_another_rate_is_taken_and_said_so(report_of, tmp_path):
    stereo = np.stack([babble(3, 44_100), babble(3, 44_100)], axis=1)
    write(tmp_path / "a.wav", stereo, 44_100)
    [checked] = report_of({"audio": "a.wav", "text": TEXT}).usable
    assert checked.length_s == pytest.approx(3, abs=0.01)
    assert "2 channels are mixed to one" in checked.notes
    assert any("from 44100 to" in note for note in checked.notes)


def test_a_note_about_many_clips_is_one_line(report_of, tmp_path):
    text = report_of(*good_clips(tmp_path, 8)).text()
    assert "line 1, 2, 3, 4, 5 and 3 more: resampled from 24000 to 1200 Hz" in text
    assert text.count("resampled") == 1


def test_what_is_read_is_what_was_recorded(tmp_path):
    sound = babble(2, 48_000)
    write(tmp_path / "a.wav", np.stack([sound, sound], axis=1), 48_000)
    recording = read_recording(tmp_path / "a.wav", 24_000, 120)
    want = babble(2, 24_000)[2000:-2000]
    got = recording.pcm[2000:-2000]
    assert np.corrcoef(got, want)[0, 1] > 0.95


def test_silence_around_a_clip_is_not_learned(report_of, tmp_path):
    write(tmp_path / "a.wav", np.concatenate([silence(1.5), SPOKEN, silence(2)]))
    [checked] = report_of({"audio": "a.wav", "text": TEXT}).usable
    assert checked.length_s == pytest.approx(3.4, abs=0.1)
    assert "1.4 s of silence at its start are not learned" in checked.notes


def test_a_quiet_breath_does_not_hide_that_a_clip_is_too_long(report_of, tmp_path):
    write(tmp_path / "a.wav", np.concatenate([SPOKEN, silence(50), babble(1)]))
    [unusable] = report_of({"audio": "a.wav", "text": TEXT}).unusable
    assert "far too long" in unusable.why


TURN = {"role": "user", "text": "Hello?"}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{not json", "not JSON"),
        ("[1]", "not a JSON object"),
        ({"text": TEXT}, "`audio` must name a sound file"),
        ({"audio": "a.wav", "text": 3}, "`text` is 3, not a text"),
        ({"audio": "a.wav", "text": TEXT, "speakr": "x"}, "unknown field 'speakr'"),
        ({"audio": "a.wav", "text": TEXT, "speaker": "../up"}, "no slashes"),
        (
            {"audio": "a.wav", "text": TEXT, "ref_audio": "no.wav"},
            "its reference: there is no file",
        ),
        ({"audio": "a.wav", "text": TEXT, "turns": [{**TURN, "role": "system"}]}, "role 'system'"),
        ({"audio": "a.wav", "text": TEXT, "turns": [{"role": "user"}]}, "neither audio nor text"),
        (
            {"audio": "a.wav", "text": TEXT, "turns": [{**TURN, "role": "assistant"}]},
            "needs both audio and text",
        ),
        (
            {"audio": "a.wav", "text": TEXT, "turns": [TURN, {**TURN, "audio": "no.wav"}]},
            "earlier turn 2: there is no file",
        ),
    ],
)
def test_a_line_that_cannot_be_used(report_of, tmp_path, line, why):
    write(tmp_path / "a.wav", SPOKEN)
    [unusable] = report_of(line).unusable
    assert why in unusable.why


def test_a_dialogue_longer_than_the_model(report_of, tmp_path):
    write(tmp_path / "a.wav", SPOKEN)
    long_text = "word " * 5000
    [unusable] = report_of(
        {"audio": "a.wav", "text": TEXT, "turns": [{"role": "user", "text": long_text}]}
    ).unusable
    assert "the model has room for 4096" in unusable.why


def test_earlier_turns_and_a_reference_are_taken(report_of, tmp_path):
    write(tmp_path / "a.wav", SPOKEN)
    turns = [
        TURN,
        {"role": "assistant", "text": TEXT, "audio": "a.wav"},
        {**TURN, "audio": "a.wav"},
    ]
    [checked] = report_of(
        {"audio": "a.wav", "text": TEXT, "turns": turns, "ref_audio": "a.wav", "speaker": "nova"}
    ).usable
    assert [turn.role for turn in checked.clip.turns] == ["user", "assistant", "user"]
    assert checked.clip.speaker == "nova"


def test_too_few_clips_are_refused(report_of, tmp_path):
    few = report_of(*good_clips(tmp_path, LEAST_CLIPS - 1))
    assert not few.enough
    assert f"at least {LEAST_CLIPS} usable clips are needed" in few.text()
    assert report_of(*good_clips(tmp_path, LEAST_CLIPS)).enough


def test_the_report_for_programs_says_the_same(report_of, tmp_path):
    report = report_of({"audio": "no.wav", "text": TEXT}, *good_clips(tmp_path, 2))
    found = json.loads(report.json())
    assert [len(found["usable"]), len(found["unusable"])] == [2, 1]
    assert found["unusable"][0]["why"] == report.unusable[0].why


@pytest.mark.parametrize("content", [None, b"", b"\n \n", b"\xff\xfe\x00"])
def test_a_file_that_is_no_manifest(tmp_path, content):
    path = tmp_path / "manifest.jsonl"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ManifestError, match=r"manifest\.jsonl"):
        read_manifest(path)
