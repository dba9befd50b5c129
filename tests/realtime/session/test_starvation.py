"""Text that does not come: stall flushes and timeouts."""

from __future__ import annotations

from engine.api import (
    Cancel,
    Flush,
)
from realtime.protocol.frames import Flags

SENTENCE = "The weather is lovely, and the trains are running on time today."


def test_a_stall_before_the_first_sound_flushes(talk):
    talk.start(text="Hi there")
    talk.wait(799)
    assert not any(isinstance(c, Flush) for c in talk.commands)
    talk.wait(1)
    assert isinstance(talk.commands[-1], Flush)
    talk.run()
    assert talk.of("response.segment")[0].audio_end_ms > 0
    assert talk.of("response.segment")[0].reply_to is None


def test_text_that_keeps_coming_is_no_stall(talk):
    talk.start()
    for _ in range(5):
        talk.say("response.text", response_id="r1", delta="so ")
        talk.wait(700)
    assert not any(isinstance(c, Flush) for c in talk.commands)


def test_a_stall_while_speaking_flushes_the_held_text(talk):
    talk.start(text=SENTENCE)
    talk.run()
    assert talk.of("response.stalled")[-1].why == "text"
    talk.wait(800)
    talk.run()
    assert talk.of("response.resumed")[-1].why == "text"
    assert talk.of("response.segment")[0].chars == (0, len(SENTENCE))
    assert talk.fed() == talk.tokens(SENTENCE)


def test_a_row_that_is_speaking_is_not_starved(talk):
    talk.start(text=SENTENCE)
    talk.step(3)
    talk.wait(50_000)
    assert not any(isinstance(c, Flush) for c in talk.commands)


def test_the_stall_clock_of_a_queued_response_starts_at_its_turn(talk):
    talk.start("r1", text="Hello.")
    talk.start("r2", text="World")
    talk.wait(700)
    talk.say("response.end", response_id="r1")
    talk.run()
    assert len(talk.opens()) == 2
    talk.wait(799)
    assert not any(isinstance(c, Flush) for c in talk.commands)
    talk.wait(1)
    assert talk.commands[-1].row == 101
    assert isinstance(talk.commands[-1], Flush)


def test_stall_flush_can_be_off(new_talk):
    talk = new_talk()
    talk.say("session.start", stall_flush_ms=0)
    talk.start(text="Hi there")
    talk.wait(59_000)
    assert not any(isinstance(c, Flush) for c in talk.commands)


def test_text_that_never_comes_times_out(talk):
    talk.start(text="Hi there")
    talk.wait(800)
    talk.run()
    talk.wait(59_199)
    assert talk.of("response.done") == []
    talk.wait(1)
    done = talk.of("response.done")[0]
    assert (done.status, done.reason) == ("incomplete", "text_timeout")
    assert isinstance(talk.commands[-1], Cancel)
    assert talk.sound("r1")[-1].flags & Flags.LAST_OF_RESPONSE
    assert talk.of("item.created")[0].item.text == "Hi there"
    talk.run()
    assert talk.messages()[-1].type == "item.created"


def test_an_ended_response_never_times_out(talk):
    talk.start(text="Hi there", end=True)
    talk.wait(120_000)
    assert talk.of("response.done") == []
