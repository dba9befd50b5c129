"""Interrupt, cancel, truncate: the order of what is said, and what is remembered as heard."""

from __future__ import annotations

import numpy as np
import pytest

from engine.api import Cancel, Played, Warm

TEXT = "Nice, welcome to Paris! There is a lot to see, and all of it is a short walk away."


def speak(talk, response_id="r1", text=TEXT, frames=None, **fields):
    """Start a response and let it make (and the socket take) so many frames, or all."""
    talk.say("response.start", response_id=response_id, text=text, end=True, **fields)
    if frames is None:
        talk.run()
    else:
        talk.step(frames)
        assert len(talk.sound(response_id)) == frames


def summary(messages) -> list[str]:
    return [message.type for message in messages]


def history(talk):
    return talk.say("history.get", audio=True)[0].items


def test_an_interrupt_says_done_then_created_then_truncated(talk):
    speak(talk, frames=42)
    messages = talk.say("interrupt", played={"response_id": "r1", "ms": 1310}, event_id="i")
    assert summary(messages) == ["response.done", "item.created", "item.truncated"]
    done, created, truncated = messages
    assert (done.status, done.reply_to) == ("cancelled", "i")
    assert (done.audio_ms, done.sent_ms) == (3360, 3360)
    assert (done.heard_ms, done.heard_source, done.clamped) == (1310, "client", False)
    assert created.item.id == truncated.item_id
    assert (created.item.audio_ms, truncated.audio_end_ms) == (1280, 1280)
    assert created.item.text == truncated.text
    assert TEXT.startswith(truncated.text)
    assert 0 < len(truncated.text) < len(TEXT)
    assert (truncated.exact, created.item.exact) == (False, False)
    assert created.item.generated_text == TEXT
    assert truncated.reply_to == "i"


def test_the_cut_context_is_warmed_and_opened(talk):
    talk.say("item.create", item={"role": "user", "text": "Any ideas?"})
    speak(talk, frames=42)
    talk.say("interrupt", played={"response_id": "r1", "ms": 1310})
    cancel, warm = talk.commands[-2:]
    assert isinstance(cancel, Cancel)
    assert isinstance(warm, Warm)
    speak(talk, "r2", frames=1)
    opened = talk.opens()[-1]
    assert (warm.grid == opened.grid).all()
    heard = np.frombuffer(history(talk)[1].audio.codes, "<u2").reshape(-1, 16)
    assert len(heard) == 16
    assert (opened.decoder_codes == heard).all()
    spoken = opened.grid[(opened.grid[:, 1:] < 1024).all(axis=1), 1:]
    assert (spoken[7:] == heard).all()  # after the voice's seven frames


def test_an_interrupt_drops_sound_that_is_not_on_the_wire(talk):
    talk.instant = False
    speak_frames = 30
    talk.say("response.start", response_id="r1", text=TEXT, end=True)
    talk.step(speak_frames)
    talk.drain(11)  # response.started and ten frames
    talk.say("interrupt")
    talk.drain()
    assert len(talk.sound("r1")) == 10
    done = talk.of("response.done")[0]
    assert (done.audio_ms, done.sent_ms) == (2400, 800)
    assert [m.type for m in talk.wire[-1:]] == ["response.done"]  # nothing was heard yet


def test_a_response_never_heard_leaves_only_its_done(talk):
    speak(talk, frames=5)
    talk.say("response.start", response_id="r2", text="More.", end=True)
    messages = talk.say("interrupt", played={"response_id": "r1", "ms": 79.9})
    assert summary(messages) == ["response.done", "response.done"]
    assert [m.heard_ms for m in messages] == [79.9, 0]
    assert history(talk) == ()
    assert len([c for c in talk.commands if isinstance(c, Cancel)]) == 1


def test_the_epoch_rises_with_every_interrupt(talk):
    speak(talk, frames=5)
    talk.say("interrupt")
    talk.say("interrupt")
    speak(talk, "r2", frames=2)
    assert talk.of("response.started")[-1].epoch == 2
    assert [s.epoch for s in talk.sound("r1")] == [0] * 5
    assert [s.epoch for s in talk.sound("r2")] == [2] * 2


def test_an_interrupt_of_nothing_is_silent(talk):
    assert talk.say("interrupt") == []
    warning = talk.say("interrupt", played={"response_id": "nope", "ms": 5})
    assert [(w.type, w.code) for w in warning] == [("warning", "unknown_response")]


def test_an_interrupt_with_an_unknown_position_still_interrupts(talk):
    speak(talk, frames=30)
    talk.wait(1000)
    messages = talk.say("interrupt", played={"response_id": "nope", "ms": 5})
    assert summary(messages)[:2] == ["warning", "response.done"]
    assert messages[1].heard_source == "clock"


def test_responses_without_context_go_on(talk):
    speak(talk, "x", context="none", frames=3)
    speak(talk, frames=3)
    talk.say("interrupt")
    assert [d.response_id for d in talk.of("response.done")] == ["r1"]
    talk.run()
    assert [(d.response_id, d.status) for d in talk.of("response.done")][1] == ("x", "completed")


def test_the_clients_position_is_clamped_to_what_was_sent(talk):
    speak(talk, frames=10)
    done, created, truncated = talk.say("interrupt", played={"response_id": "r1", "ms": 5000})
    assert (done.heard_ms, done.clamped) == (800, True)
    assert (truncated.audio_end_ms, truncated.clamped) == (800, True)
    assert created.item.audio_ms == 800


@pytest.mark.parametrize(
    ("reports", "waited_ms", "heard_ms", "source"),
    [
        ([], 0, 0, "clock"),
        ([], 500, 500, "clock"),
        ([], 60_000, 3200, "clock"),
        ([{"played_ms": 320}], 500, 820, "playback"),
        ([{"played_ms": 320}], 60_000, 3200, "playback"),
        ([{"played_ms": 320, "state": "stalled"}], 500, 320, "playback"),
        ([{"played_ms": 320}, {"played_ms": 160}], 0, 320, "playback"),
        ([{"played_ms": 9000}], 0, 3200, "playback"),
    ],
)
def test_without_a_position_it_is_estimated(talk, reports, waited_ms, heard_ms, source):
    speak(talk, frames=40)
    for report in reports:
        talk.say("playback", response_id="r1", **report)
    talk.wait(waited_ms)
    done = talk.say("interrupt")[0]
    assert (done.heard_ms, done.heard_source) == (heard_ms, source)


def test_before_any_sound_nothing_was_heard(talk):
    talk.say("response.start", response_id="r1", text="Hm")
    done = talk.say("interrupt")[0]
    assert (done.heard_ms, done.heard_source) == (0, "none")


def test_the_clients_own_words_win(talk):
    speak(talk, frames=42)
    played = {"response_id": "r1", "ms": 1310, "text": "Nice, welcome"}
    _, created, truncated = talk.say("interrupt", played=played)
    assert (created.item.text, created.item.exact) == ("Nice, welcome", True)
    assert (truncated.text, truncated.exact) == ("Nice, welcome", True)


def test_a_cancel_stops_one_response_and_the_next_speaks(talk):
    speak(talk, frames=20)
    talk.say("response.start", response_id="r2", text="More.", end=True)
    messages = talk.say("response.cancel", response_id="r1", played_ms=800, event_id="c")
    assert summary(messages) == ["response.done", "item.created", "item.truncated"]
    assert messages[0].reply_to == "c"
    assert len(talk.opens()) == 2
    assert len(talk.opens()[1].decoder_codes) == 10
    talk.run()
    assert talk.sound("r2")[0].epoch == 0
    error = talk.say("response.cancel", response_id="nope")[0]
    assert error.code == "unknown_response"


def test_a_queued_response_is_cancelled_without_a_row(talk):
    speak(talk, frames=2)
    talk.say("response.start", response_id="r2", text="More.", end=True)
    assert summary(talk.say("response.cancel", response_id="r2")) == ["response.done"]
    assert not any(isinstance(c, Cancel) for c in talk.commands)


def test_late_engine_events_of_a_cancelled_row_are_ignored(talk):
    speak(talk, frames=5)
    talk.engine.step()  # makes a frame that the session has not seen
    talk.say("interrupt")
    before = len(talk.wire)
    talk.run()
    assert talk.wire[before:] == []


# --- after response.done


def test_a_late_interrupt_cuts_what_is_still_playing(talk):
    speak(talk)
    full = talk.of("item.created")[0].item
    messages = talk.say("interrupt", played={"response_id": "r1", "ms": 1000}, event_id="i")
    assert summary(messages) == ["item.truncated"]
    assert (messages[0].audio_end_ms, messages[0].reply_to) == (960, "i")
    item = history(talk)[0]
    assert (item.text, item.audio_ms) == (messages[0].text, 960)
    assert item.generated_text == full.text
    assert isinstance([c for c in talk.commands if isinstance(c, Warm)][-1], Warm)
    assert talk.say("interrupt") == []  # it was cut already


def test_a_late_interrupt_before_the_first_frame_deletes_the_item(talk):
    speak(talk)
    messages = talk.say("interrupt", played={"response_id": "r1", "ms": 10})
    assert summary(messages) == ["item.truncated", "item.deleted"]
    assert (messages[0].audio_end_ms, messages[0].text) == (0, "")
    assert history(talk) == ()


def test_a_response_heard_to_its_end_is_not_cut(talk):
    speak(talk)
    talk.wait(60_000)
    assert talk.say("interrupt") == []
    assert history(talk)[0].text == TEXT


@pytest.mark.parametrize("ending", ["playback", "user item"])
def test_a_late_cut_is_valid_until(talk, ending):
    speak(talk)
    item = talk.of("item.created")[0].item
    if ending == "playback":
        talk.say("playback", response_id="r1", played_ms=item.audio_ms, state="done")
    else:
        talk.say("item.create", item={"role": "user", "text": "ok"})
    assert talk.say("interrupt", played={"response_id": "r1", "ms": 500}) == []
    error = talk.say("item.truncate", item_id=item.id, audio_end_ms=500)[0]
    assert (error.code, error.param) == ("invalid_field", "item_id")
    assert history(talk)[0].text == TEXT


def test_responses_that_play_one_after_another(talk):
    speak(talk, "r1", text="One two three.")
    speak(talk, "r2", text="Four five six.")
    speak(talk, "r3", text="Seven eight nine.", frames=4)
    messages = talk.say("interrupt", played={"response_id": "r2", "ms": 400})
    assert summary(messages) == ["response.done", "item.truncated"]
    assert (messages[0].response_id, messages[0].heard_ms) == ("r3", 0)
    assert [i.text == "One two three." for i in history(talk)] == [True, False]


def test_the_clock_knows_that_the_previous_response_plays_first(talk):
    speak(talk, "r1", text="One two three.")
    length_ms = talk.of("response.done")[0].audio_ms
    speak(talk, "r2", text="Four five six.", frames=20)
    talk.wait(int(length_ms) + 400)
    done, *_ = talk.say("interrupt")
    assert (done.response_id, done.heard_ms) == ("r2", 400)
    assert history(talk)[0].text == "One two three."


# --- item.truncate


def test_a_truncate_may_correct_an_interrupt(talk):
    speak(talk, frames=42)
    truncated = talk.say("interrupt", played={"response_id": "r1", "ms": 800})[-1]
    again = talk.say(
        "item.truncate",
        item_id=truncated.item_id,
        audio_end_ms=1600,
        text="Nice, welcome to Paris!",
    )
    assert summary(again) == ["item.truncated"]
    assert (again[0].audio_end_ms, again[0].exact) == (1600, True)
    item = history(talk)[0]
    assert (item.text, item.audio_ms) == ("Nice, welcome to Paris!", 1600)
    assert len(item.audio.codes) == 20 * 16 * 2


def test_a_truncate_is_clamped_and_says_so(talk):
    speak(talk)
    item = talk.of("item.created")[0].item
    truncated = talk.say("item.truncate", item_id=item.id, audio_end_ms=10**6, event_id="t")[0]
    assert (truncated.clamped, truncated.audio_end_ms) == (True, item.audio_ms)
    assert (truncated.text, truncated.reply_to) == (TEXT, "t")


def test_what_cannot_be_truncated(talk):
    error = talk.say("item.truncate", item_id="nope", audio_end_ms=5)[0]
    assert error.code == "unknown_item"
    user = talk.say("item.create", item={"role": "user", "text": "hi"})[0].item
    error = talk.say("item.truncate", item_id=user.id, audio_end_ms=5)[0]
    assert error.code == "invalid_field"
    speak(talk, frames=3)
    item_id = talk.of("response.started")[0].item_id
    error = talk.say("item.truncate", item_id=item_id, audio_end_ms=5)[0]
    assert "still being spoken" in error.message


def test_client_text_over_several_segments(talk):
    talk.say("response.start", response_id="r1", text="One two.")
    talk.say("response.flush", response_id="r1")
    talk.say("response.text", response_id="r1", delta=" Three four.")
    talk.say("response.end", response_id="r1")
    talk.run()
    item = talk.of("item.created")[0].item
    first_ms = talk.of("response.segment")[0].audio_end_ms
    cut_ms = first_ms + 400
    talk.say("item.truncate", item_id=item.id, audio_end_ms=cut_ms, text="One two. Three")
    talk.say("item.truncate", item_id=item.id, audio_end_ms=cut_ms, text="Something else")
    assert history(talk)[0].text == "Something else"
    assert history(talk)[0].audio_ms == cut_ms
    talk.say("item.truncate", item_id=item.id, audio_end_ms=first_ms)
    assert (history(talk)[0].text, history(talk)[0].exact) == ("One two.", True)


# --- flow


def test_played_reports_are_the_credit_of_ack(new_talk):
    talk = new_talk()
    talk.say("session.start", flow={"mode": "ack", "max_ahead_ms": 1000})
    talk.say("response.start", response_id="r1", text=TEXT, end=True)
    talk.run()
    assert talk.of("response.stalled")[-1].why == "flow"
    made = len(talk.sound("r1"))
    assert made == 12
    assert not any(isinstance(c, Played) for c in talk.commands)
    talk.say("playback", response_id="r1", played_ms=480)
    talk.run()
    assert len(talk.sound("r1")) == made + 6
    assert [c.samples for c in talk.commands if isinstance(c, Played)] == [480 * 24]


def test_without_ack_what_was_sent_counts_as_played(talk):
    speak(talk, frames=3)
    assert [c.samples for c in talk.commands if isinstance(c, Played)] == [1920, 3840, 5760]


def test_playback_of_an_unknown_response(talk):
    error = talk.say("playback", response_id="nope", played_ms=1)[0]
    assert error.code == "unknown_response"


def test_done_waits_until_all_sound_is_sent(talk):
    talk.instant = False
    talk.say("response.start", response_id="r1", text="Hi.", end=True)
    talk.say("response.start", response_id="r2", text="Ho.", end=True)
    talk.run()
    assert len(talk.opens()) == 1
    talk.drain()
    assert talk.of("response.done")[0].sent_ms == talk.of("response.done")[0].audio_ms
    assert len(talk.opens()) == 2
