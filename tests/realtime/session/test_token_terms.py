"""What a client token says holds for the session: fixed settings, and an end that is announced."""

from __future__ import annotations

from typing import Any

import pytest

from realtime.protocol.errors import CLOSE_TOKEN_EXPIRED, ProtocolError
from realtime.session.expiry import WARN_MS, Expiry
from realtime.session.pins import Pins

FIXED = {
    "voice": "male",
    "generation": {"temperature": 0.5, "max_audio_s": 10},
    "flow": {"mode": "ack"},
    "metadata": {"user": "u1"},
}


def test_fixed_settings_take_effect_without_being_asked_for(new_talk) -> None:
    talk = new_talk(pins=Pins(FIXED))
    [started] = talk.say("session.start", generation={"top_k": 7})
    assert (started.voice, started.flow.mode, started.metadata) == ("male", "ack", {"user": "u1"})
    generation = started.generation
    assert (generation.temperature, generation.max_audio_s, generation.top_k) == (0.5, 10, 7)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"voice": "alto"}, "voice"),
        ({"voice": {"id": "v-male"}}, "voice"),
        ({"generation": {"temperature": 0.6}}, "generation.temperature"),
        ({"generation": {"seed": 1, "max_audio_s": 11}}, "generation.max_audio_s"),
        ({"flow": {"mode": "none"}}, "flow.mode"),
        ({"metadata": {"user": "u2"}}, "metadata"),
    ],
)
def test_another_value_than_the_fixed_one_is_refused(new_talk, fields, param) -> None:
    fixed = FIXED | {"flow": {"mode": "ack", "max_ahead_ms": 900}}
    talk = new_talk(pins=Pins(fixed))
    if param == "flow.mode":  # the default, which is taken for leaving it out
        [started] = talk.say("session.start", **fields)
        assert started.flow.mode == "ack"
        return
    [refused] = talk.say("session.start", **fields)
    assert (refused.type, refused.code, refused.param) == ("error", "unauthorized", param)
    [started] = talk.say("session.start")
    assert started.voice == "male"
    [refused] = talk.say("session.update", **fields)
    assert (refused.type, refused.code, refused.param) == ("error", "unauthorized", param)
    if param in ("flow.mode", "metadata"):
        return
    [refused] = talk.start("r1", **fields)
    assert (refused.type, refused.code, refused.param) == ("error", "unauthorized", param)


def test_a_later_message_cannot_fall_back_to_a_default(new_talk) -> None:
    talk = new_talk(pins=Pins(FIXED))
    talk.say("session.start")
    updated = talk.say("session.update", flow={"mode": "none"}, stall_flush_ms=5)[0]
    assert (updated.flow.mode, updated.stall_flush_ms) == ("ack", 5)
    started, *_ = talk.start("r1", metadata={"mine": 1}, text="Hi.", end=True)
    assert started.metadata == {"mine": 1}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"history": []}, "history"),
        ({"m": 4}, "m"),
        ({"color": "red"}, "color"),
        ({"generation": {"temperature": "hot"}}, "generation.temperature"),
        ({"audio": {"frame": 80}}, "audio.frame"),
    ],
)
def test_what_cannot_be_fixed_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        Pins(fields)
    assert caught.value.param == param


def test_the_end_of_a_token_is_known_announced_and_kept(new_talk) -> None:
    talk = new_talk(expiry=Expiry(at_ms=1000 + 600_000, at_unix_s=1_700_000_600))
    [started] = talk.say("session.start")
    assert started.expires_at == 1_700_000_600
    talk.wait(600_000 - WARN_MS - 1)
    assert talk.of("session.going_away") == []
    talk.start("r1")  # a session that speaks is not idle, and ends all the same
    talk.wait(1)
    [going] = talk.of("session.going_away")
    assert (going.in_ms, going.reason) == (WARN_MS, "expiry")
    talk.wait(WARN_MS - 1)
    assert talk.closed is None
    talk.wait(1)
    assert talk.closed.code == CLOSE_TOKEN_EXPIRED
    assert not talk.session.is_closed  # another token may take it up
    assert talk.of("session.going_away") == [going]


def test_a_token_that_ends_before_the_start_closes_too(new_talk) -> None:
    talk = new_talk(expiry=Expiry(at_ms=3000, at_unix_s=2))
    talk.wait(1999)
    assert talk.closed is None
    talk.wait(1)
    assert talk.closed.code == CLOSE_TOKEN_EXPIRED
    assert talk.wire == []


def test_without_a_token_nothing_expires(talk) -> None:
    assert talk.of("session.started")[0].expires_at is None
    talk.start("r1")
    talk.wait(30_000)
    assert talk.of("session.going_away") == []
