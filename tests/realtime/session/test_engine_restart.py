"""The engine dies in the middle of a response: the next one goes on, and nothing is lost."""

import base64
import dataclasses

import numpy as np
import pytest

from engine.api import Cancel, Frames, Played, Refused
from realtime.protocol.frames import Flags
from tests.realtime.session.conftest import FRAME_SAMPLES, PROMPT, codes

FIRST, SECOND = "Yes. ", "Take your time, and call me then."


def converse(talk, deaths=(), **started):
    """A turn of two segments; the engine dies after each of so many steps."""
    talk.say("session.start", **started)
    talk.start("r1", text=FIRST, generation={"seed": 5})
    talk.say("response.flush", response_id="r1")
    talk.say("response.text", response_id="r1", delta=SECOND)
    talk.say("response.end", response_id="r1")
    for steps in deaths:
        talk.step(steps)
        talk.kill_engine()
    talk.run()
    return talk


def history(talk):
    [answer] = talk.say("history.get", audio=True)
    return [(item.role, item.text, item.audio_ms, item.audio.codes) for item in answer.items]


def reports(talk):
    return [
        (s.index, s.audio_start_ms, s.audio_end_ms, s.chars) for s in talk.of("response.segment")
    ]


@pytest.fixture(scope="module")
def unbroken(new_talk):
    return converse(new_talk())


@pytest.mark.parametrize("deaths", [(0,), *[(n,) for n in range(1, 60, 3)], (3, 30, 30)])
def test_sound_history_and_reports_are_those_of_an_unbroken_run(new_talk, unbroken, deaths):
    talk = converse(new_talk(), deaths)
    [done] = talk.of("response.done")
    assert done.status == "completed"
    assert history(talk) == history(unbroken)
    assert reports(talk) == reports(unbroken)
    sound, expected = talk.sound("r1"), unbroken.sound("r1")
    assert sum(s.samples for s in sound) == sum(s.samples for s in expected)
    ends = [s for s in sound if Flags.LAST_OF_RESPONSE in s.flags]
    assert ends == [sound[-1]]
    assert [Flags.FIRST in s.flags for s in sound] == [True] + [False] * (len(sound) - 1)


def test_the_open_carries_what_was_said(new_talk):
    """Segments that are through are turns of the context; of the others the frames are given."""
    talk = converse(new_talk(), (70,), voice="alto")
    first, again = talk.opens()
    [report, _] = talk.of("response.segment")
    end = round(report.audio_end_ms / 80)
    assert again.row != first.row
    assert (again.seed, again.sampling, again.max_frames) == (
        first.seed,
        first.sampling,
        first.max_frames,
    )
    assert 0 < again.segment_frame == end < len(again.generated)
    turn = PROMPT.assistant_turn(talk.tokens(FIRST), again.generated[:end], "training")
    header = PROMPT.assistant_header(False, "training")
    np.testing.assert_array_equal(again.grid, np.concatenate([first.grid, turn, header]))
    assert talk.fed(again.row) == talk.tokens(SECOND)
    played = next(c for c in talk.commands if isinstance(c, Played) and c.row == again.row)
    assert played.samples == len(again.generated) * FRAME_SAMPLES


def test_the_client_is_told_and_a_stall_ends_and_begins_again(talk):
    talk.start("r1", text=SECOND)
    talk.run()
    [stalled] = talk.of("response.stalled")
    talk.kill_engine()
    [resumed] = talk.of("response.resumed")
    assert resumed.why == stalled.why == "text"
    [warning] = [w for w in talk.of("warning") if w.code == "engine_restarted"]
    assert "'r1'" in warning.message
    talk.run()
    assert len(talk.of("response.stalled")) == 2
    talk.say("response.text", response_id="r1", delta=FIRST)
    talk.say("response.end", response_id="r1")
    talk.run()
    [done] = talk.of("response.done")
    assert done.status == "completed"
    [item] = talk.of("item.created")
    assert item.item.text == SECOND + FIRST


def test_a_listener_who_reports_has_what_he_reported(new_talk):
    talk = new_talk()
    talk.say("session.start", flow={"mode": "ack", "max_ahead_ms": 800})
    talk.start("r1", text=FIRST + SECOND, end=True)
    talk.step(20)
    talk.say("playback", response_id="r1", played_ms=480, state="stalled")
    talk.kill_engine()
    played = [c for c in talk.commands if isinstance(c, Played)][-1]
    assert played.row == talk.opens()[-1].row
    assert played.samples == 6 * FRAME_SAMPLES


def test_an_engine_that_keeps_dying_ends_the_response_and_the_next_one_speaks(talk):
    talk.start("r1", text=FIRST, end=True)
    talk.start("r2", text=SECOND, end=True)
    talk.step(5)
    for _ in range(4):
        assert not talk.of("response.done")
        talk.kill_engine()
    [done] = talk.of("response.done")
    assert (done.status, done.error.code) == ("failed", "engine_restarted")
    assert done.error.retryable
    talk.run()
    assert [d.status for d in talk.of("response.done")] == ["failed", "completed"]
    kept, _ = talk.of("item.created")
    assert kept.item.audio_ms == 80 * 5, "what was heard stays"


def test_no_engine_comes(talk):
    talk.start("r1", text=FIRST, end=True)
    talk.step(5)
    talk.kill_engine()
    talk.event(Refused(talk.opens()[-1].row, "engine_restarted", "none came", 0))
    [done] = talk.of("response.done")
    assert (done.status, done.error.code) == ("failed", "engine_restarted")


def test_sound_that_may_jump_is_flagged(talk):
    """The next engine could not decode again all that had been heard."""
    talk.start("r1", text=FIRST, end=True)
    talk.step(5)
    talk.kill_engine()
    talk.engine.step()
    first, *others = [event for event in talk.events if isinstance(event, Frames)]
    talk.events.clear()
    talk.event(dataclasses.replace(first, discontinuity=True))
    talk.run()
    flagged = [Flags.DISCONTINUITY in sound.flags for sound in talk.sound("r1")]
    assert flagged == [False] * 5 + [True] + [False] * (len(flagged) - 6)
    assert not others


def test_an_interrupt_while_no_engine_runs(talk):
    talk.start("r1", text=FIRST + SECOND, end=True)
    talk.step(30)
    talk.kill_engine()
    talk.say("interrupt", played={"response_id": "r1", "ms": 800})
    [done] = talk.of("response.done")
    assert done.status == "cancelled"
    assert talk.commands.count(Cancel(talk.opens()[-1].row)) == 1
    [created] = talk.of("item.created")
    assert created.item.audio_ms == 800
    talk.run()
    assert len(talk.of("response.done")) == 1


def test_responses_beside_the_conversation_go_on_too(talk):
    talk.start("r1", text=FIRST, end=True)
    talk.start("r2", text=SECOND, end=True, context="none")
    talk.step(10)
    talk.kill_engine()
    talk.run()
    assert {d.status for d in talk.of("response.done")} == {"completed"}


def test_items_made_since_do_not_change_the_context(talk):
    talk.start("r1", text=FIRST, end=True)
    talk.step(10)
    audio = {"codes": base64.b64encode(codes(3).tobytes()).decode()}
    talk.say("item.create", item={"role": "user", "text": "And?", "audio": audio})
    talk.kill_engine()
    first, again = talk.opens()
    np.testing.assert_array_equal(again.grid, first.grid)
