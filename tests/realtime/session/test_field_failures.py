"""What people report of other voice services, as far as a session alone can show that it is not so.

`tests/complaints.md` maps every such report to its proof.
"""

from __future__ import annotations

import json
import math

import pytest

from engine.fake import FakeScript
from tests.realtime.session.conftest import MODEL, Sound

TEXT = "The weather is lovely, and the trains are running on time today."
PONG = "pong"


def speak(talk, response_id="r1", text=TEXT, **fields):
    return talk.say("response.start", response_id=response_id, text=text, end=True, **fields)


def test_fifty_interruptions_in_a_row_leave_the_session_as_it_was(talk):
    """Cancelled responses take no place: the queue never fills."""
    for turn in range(50):
        speak(talk, f"r{turn}")
        talk.step(turn % 3)
        talk.say("interrupt")
    assert talk.of("error") == []
    assert [m.status for m in talk.of("response.done")] == ["cancelled"] * 50
    talk.step(2)
    assert not talk.engine._running
    speak(talk, "last")
    talk.run()
    assert talk.of("response.done")[-1].status == "completed"


@pytest.mark.parametrize("by", ["interrupt", "truncate"])
@pytest.mark.parametrize("beyond_ms", [-math.inf, -1, 0, 1, 3_600_000, math.nan])
def test_a_position_that_cannot_be_is_clamped_or_named(talk, by, beyond_ms):
    speak(talk)
    talk.run()
    done = talk.of("response.done")[0]
    item_id = talk.of("item.created")[0].item.id
    ms = -1.0 if beyond_ms == -math.inf else done.sent_ms + beyond_ms
    if by == "interrupt":
        fields = {"type": "interrupt", "played": {"response_id": "r1", "ms": ms}}
    else:
        fields = {"type": "item.truncate", "item_id": item_id, "audio_end_ms": ms}
    talk.say_raw(json.dumps(fields | {"m": talk.session.awaited_m}))
    errors = [error.code for error in talk.of("error")]
    assert errors == (["invalid_field"] if math.isnan(ms) else [])
    for truncated in talk.of("item.truncated"):
        assert truncated.audio_end_ms <= done.sent_ms
        assert truncated.clamped == (ms > done.sent_ms or ms < 0)
    items = talk.say("history.get", m=talk.session.awaited_m)[0].items
    if ms < 80:
        assert items == ()  # nothing of it was heard
    else:
        kept_ms = done.audio_ms if ms >= done.audio_ms or errors else ms // 80 * 80
        assert [item.audio_ms for item in items] == [kept_ms]


def test_three_flushes_are_three_segments_and_one_end(talk):
    talk.start()
    sentences = ["One two.", " Three four.", " Five six."]
    for sentence in sentences:
        talk.say("response.text", response_id="r1", delta=sentence)
        talk.say("response.flush", response_id="r1")
        talk.run()
    assert talk.of("response.done") == []
    talk.say("response.end", response_id="r1")
    talk.run()
    segments = talk.of("response.segment")
    assert [s.chars for s in segments] == [(0, 8), (8, 20), (20, 30)]
    (done,) = talk.of("response.done")
    assert segments[-1].audio_end_ms == done.audio_ms
    assert talk.of("item.created")[0].item.text == "".join(sentences)


@pytest.mark.parametrize("stall_ms", [500, 2000, 20_000, 70_000])
@pytest.mark.parametrize("tokens", range(17))
def test_a_language_model_that_stalls_freezes_nothing(talk, tokens, stall_ms):
    """At every token: what was written is spoken, and the response ends however it goes on."""
    ids = talk.tokens(TEXT)
    before, after = talk.text_of(ids[:tokens]), talk.text_of(ids[tokens:])
    talk.start()
    if before:
        talk.say("response.text", response_id="r1", delta=before)
    talk.run()
    for _ in range(stall_ms // 100):
        talk.wait(100)
        talk.run()
    timed_out = stall_ms > 60_000
    if stall_ms >= 2000 and before and not timed_out:
        assert talk.fed() == talk.tokens(before)
        assert talk.of("response.segment")[0].chars == (0, len(before))
    assert bool(talk.of("response.done")) == timed_out
    talk.say("response.text", response_id="r1", delta=after)
    talk.say("response.end", response_id="r1")
    talk.run()
    (done,) = talk.of("response.done")
    assert (done.status, done.reason) == (
        ("incomplete", "text_timeout") if timed_out else ("completed", None)
    )
    assert bool(talk.of("item.created")) == bool(not timed_out or before)


@pytest.mark.parametrize(
    "text",
    ["a", "Hi", "Hi.", "No!", "I?", "42", "5%", "...", "?", "-", "\U0001f44d", "é", "我", "Ok so"],
)
def test_the_shortest_texts_are_spoken(talk, text):
    speak(talk, text=text)
    talk.run()
    done = talk.of("response.done")[0]
    assert done.status == "completed"
    assert done.audio_ms > 0
    assert talk.of("item.created")[0].item.text == text


STATES = {
    "prefilling": ({}, [("r1", {"end": False, "text": "So"})], 2),
    "queued": ({}, [("r1", {}), ("r2", {})], 1),
    "speaking": ({}, [("r1", {})], 20),
    "waiting for text": ({}, [("r1", {"end": False})], 200),
    "waiting for the listener": ({"mode": "ack", "max_ahead_ms": 400}, [("r1", {})], 20),
    "done": ({}, [("r1", {})], 300),
}


@pytest.mark.parametrize("state", STATES)
def test_a_ping_means_nothing_but_a_pong(new_talk, state):
    flow, responses, ticks = STATES[state]

    def wire(pings: int) -> list[object]:
        talk = new_talk(script=FakeScript(model=MODEL))
        talk.say("session.start", flow=flow)
        for response_id, fields in responses:
            talk.start(response_id, **({"text": TEXT, "end": True} | fields))
        talk.step(ticks)
        for _ in range(pings):
            assert [m.type for m in talk.say("ping", t=1)] == [PONG]
        talk.step(20)
        talk.say("interrupt")
        return [e if isinstance(e, Sound) else e.type for e in talk.wire if kind(e) != PONG]

    assert wire(pings=5) == wire(pings=0)


def kind(entry) -> str | None:
    return getattr(entry, "type", None)


def test_one_responses_error_leaves_the_others_alone(talk):
    speak(talk, "good")
    error = speak(talk, "bad", voice="nobody", context="none")[0]
    assert (error.type, error.code) == ("error", "voice_not_found")
    speak(talk, "long", text="x" * 8001, context="none")
    talk.run()
    assert [(m.response_id, m.status) for m in talk.of("response.done")] == [("good", "completed")]
