"""A dialogue as a capsule: the same context elsewhere, and nothing that is wrong gets in."""

from __future__ import annotations

import base64
import copy
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from realtime.session.capsule import pack_codes
from realtime.session.history import History
from tests.realtime.session.conftest import MODEL, codes, make_talk

TEXT = "Nice, welcome to Paris! There is a lot to see, and all of it is a short walk away."


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def dialogue(talk) -> None:
    """A user's text, a user's sound, a whole reply of two segments, one cut short."""
    talk.say("item.create", item={"role": "user", "text": "Any ideas?"})
    talk.start("r1", text="One two three.")
    talk.say("response.flush", response_id="r1")
    talk.say("response.text", response_id="r1", delta=" Four <|im_end|> 五六。")
    talk.say("response.end", response_id="r1")
    talk.run()
    sound = {"codes": b64(codes(20).astype("<u2").tobytes())}
    talk.say("item.create", item={"role": "user", "audio": sound})
    talk.start("r2", text=TEXT, end=True)
    talk.step(42)
    talk.say("interrupt", played={"response_id": "r2", "ms": 1310})
    talk.say("item.create", item={"role": "user", "text": "Go on."})


def export(talk) -> bytes:
    (answer,) = talk.say("history.export", event_id="x")
    assert (answer.type, answer.reply_to) == ("history.capsule", "x")
    return answer.data


def imported(capsule: bytes, **fields: Any):
    talk = make_talk()
    talk.answer = talk.say("session.start", capsule=b64(capsule), **fields)
    return talk


def history(talk):
    return talk.say("history.get", audio=True)[0].items


def opened(talk):
    talk.start("next", text="So.", end=True)
    return talk.opens()[-1]


def test_a_dialogue_goes_on_elsewhere_as_if_it_had_never_moved(talk):
    dialogue(talk)
    other = imported(export(talk))
    assert history(other) == history(talk)
    here, there = opened(talk), opened(other)
    np.testing.assert_array_equal(here.grid, there.grid)
    np.testing.assert_array_equal(here.decoder_codes, there.decoder_codes)
    assert len(there.decoder_codes) > 16


def test_a_capsule_of_a_capsule_is_the_same(talk):
    dialogue(talk)
    capsule = export(talk)
    assert export(imported(capsule)) == capsule


def test_normalized_text_keeps_both_its_forms(new_talk):
    talk = new_talk()
    talk.say("session.start", normalize=True)
    talk.start("r1", text="It is **12** o'clock at example.com.", end=True)
    talk.run()
    item = history(talk)[0]
    assert item.spoken_text
    assert history(imported(export(talk))) == (item,)


def test_sound_takes_two_kilobits_a_second(talk):
    export_empty = len(export(talk))
    sound = {"codes": b64(codes(750).astype("<u2").tobytes())}  # a minute
    talk.say("item.create", item={"role": "user", "audio": sound})
    assert len(export(talk)) - export_empty == pytest.approx(60 * 2000 / 8, rel=0.01)


def test_frames_outside_the_codebook_survive():
    sound = codes(4)
    sound[2, 5] = MODEL.codebook_size + 2
    packed = pack_codes(sound, MODEL.codebook_size)
    assert (packed.bits, packed.frames) == (11, 4)
    assert pack_codes(codes(4), MODEL.codebook_size).bits == 10


def test_the_voice_comes_along_unless_another_is_asked_for(new_talk):
    talk = new_talk()
    talk.say("session.start", voice="male")
    talk.start("r1", text=TEXT, end=True)
    talk.run()
    capsule = export(talk)
    same = imported(capsule)
    assert same.of("session.started")[0].voice == "male"
    assert same.of("warning") == []
    assert [item.in_context for item in history(same)] == [True]
    other = imported(capsule, voice="alto")
    assert other.of("session.started")[0].voice == "alto"
    assert [w.code for w in other.of("warning")] == ["context_restarted"]
    assert [item.in_context for item in history(other)] == [False]


def test_items_outside_the_context_stay_outside(talk):
    dialogue(talk)
    talk.say("session.update", voice="male")
    other = imported(export(talk))
    assert [i.in_context for i in history(other)] == [i.in_context for i in history(talk)]
    np.testing.assert_array_equal(opened(talk).grid, opened(other).grid)


def test_a_capsule_too_long_is_trimmed_and_says_so(new_talk, monkeypatch):
    talk = new_talk()
    talk.say("session.start")
    for turn in range(6):
        talk.say("item.create", item={"role": "user", "text": f"turn {turn}"})
    capsule = export(talk)
    monkeypatch.setattr(History, "is_over_limits", lambda self: len(self.items) > 4)
    other = imported(capsule)
    assert [item.text for item in history(other)] == ["turn 2", "turn 3", "turn 4", "turn 5"]
    assert [w.code for w in other.of("warning")] == ["history_trimmed"]


def test_history_given_beside_a_capsule_follows_it(talk):
    dialogue(talk)
    other = imported(export(talk), history=[{"role": "user", "text": "And now?"}])
    assert [i.text for i in history(other)] == [*(i.text for i in history(talk)), "And now?"]


# --- what is wrong with a capsule


def good() -> dict[str, Any]:
    packed = pack_codes(codes(5), MODEL.codebook_size)
    sound = {"frames": packed.frames, "bits": packed.bits, "data": packed.data}
    text = [{"spoken": "Hello.", "written": "Hello."}]
    return {
        "version": 1,
        "model": "tiny",
        "n_vq": 16,
        "codebook_size": 1024,
        "voice": "v-alto",
        "items": [
            {"id": "a", "role": "user", "parts": [{"pieces": text}]},
            {"id": "b", "role": "assistant", "parts": [{"pieces": text, "codes": sound}]},
        ],
    }


def test_what_is_good_is_taken():
    assert [item.audio_ms for item in history(imported(msgpack.packb(good())))] == [0, 400]


OUTSIDE = pack_codes(np.full((5, 16), 1027, np.uint16), 1024)
USERS = pack_codes(np.full((5, 16), 1024, np.uint16), 1024)
SOUND = ("items", 1, "parts", 0, "codes")


@pytest.mark.parametrize(
    ("place", "value", "code", "param"),
    [
        (("version",), 2, "unsupported", "capsule.version"),
        (("model",), "other", "invalid_field", "capsule.model"),
        (("n_vq",), 8, "invalid_field", "capsule.n_vq"),
        (("codebook_size",), 2048, "invalid_field", "capsule.codebook_size"),
        (("voice",), "v-nobody", "voice_not_found", "voice"),
        (("colour",), "red", "invalid_field", "capsule.colour"),
        (("items",), {}, "invalid_field", "capsule.items"),
        (("items", 1, "role"), "system", "invalid_field", "capsule.items[1].role"),
        (("items", 1, "id"), "a", "invalid_field", "capsule.items[1].id"),
        (("items", 0, "parts"), [], "invalid_field", "capsule.items[0].parts"),
        (("items", 0, "parts"), [{}], "invalid_field", "capsule.items[0]"),
        (
            ("items", 0, "parts", 0, "pieces", 0, "spoken"),
            5,
            "invalid_field",
            "capsule.items[0].parts[0].pieces[0].spoken",
        ),
        (
            ("items", 0, "parts", 0, "pieces", 0, "written"),
            "x" * 8001,
            "text_too_long",
            "capsule.items[0].parts[0].pieces[0].written",
        ),
        ((*SOUND, "frames"), 6, "bad_audio", "capsule.items[1].parts[0].codes.data"),
        ((*SOUND, "frames"), -1, "invalid_field", "capsule.items[1].parts[0].codes.frames"),
        ((*SOUND, "frames"), 10**9, "invalid_field", "capsule.items[1].parts[0].codes.frames"),
        ((*SOUND, "bits"), 17, "invalid_field", "capsule.items[1].parts[0].codes.bits"),
        ((*SOUND, "bits"), 9, "bad_audio", "capsule.items[1].parts[0].codes.data"),
        ((*SOUND, "data"), "text", "invalid_field", "capsule.items[1].parts[0].codes.data"),
        (
            SOUND,
            {"frames": 5, "bits": OUTSIDE.bits, "data": OUTSIDE.data},
            "bad_audio",
            "capsule.items[1].parts[0].codes.data",
        ),
        (
            ("items", 0, "parts", 0, "codes"),
            {"frames": 5, "bits": USERS.bits, "data": USERS.data},
            "bad_audio",
            "capsule.items[0].parts[0].codes.data",
        ),
    ],
)
def test_an_error_says_where(place, value, code, param):
    capsule = copy.deepcopy(good())
    at: Any = capsule
    for step in place[:-1]:
        at = at[step]
    at[place[-1]] = value
    talk = imported(msgpack.packb(capsule))
    (error,) = talk.answer
    assert (error.type, error.code, error.param) == ("error", code, param)
    assert talk.commands == []
    assert talk.say("session.start")[0].type == "session.started"  # the socket lives


@pytest.mark.parametrize(
    "data", [b"", b"\xc1", b"nonsense", b"\x81", b"\xc7\x01\x05a", b"\x91" * 100_000, b"\x93\1\2\3"]
)
def test_nonsense_is_refused(data):
    (error,) = imported(data).answer
    assert (error.type, error.code) == ("error", "invalid_field")
    assert error.param.startswith("capsule") or "capsule" in error.message


@given(st.data())
def test_a_damaged_capsule_is_refused_or_harmless(data: st.DataObject) -> None:
    raw = bytearray(msgpack.packb(good()))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(raw[: data.draw(st.integers(0, len(raw)))])
    talk = imported(damaged)
    assert talk.answer[0].type in ("session.started", "error")
    if talk.answer[0].type == "session.started":
        assert len(opened(talk).grid) > 0
