"""Responses: text rules, segments, starvation, limits, how they end."""

from __future__ import annotations

import numpy as np
import pytest

from engine.api import (
    Counts,
    Done,
    End,
    Feed,
    Flush,
    Frames,
    Segment,
)
from realtime.protocol.frames import Flags

SENTENCE = "The weather is lovely, and the trains are running on time today."


def test_a_response_from_start_to_done(talk):
    started = talk.start(event_id="s", metadata={"k": 1})[0]
    assert (started.type, started.reply_to, started.position) == ("response.started", "s", 0)
    assert (started.context, started.epoch, started.stream) == ("conversation", 0, 1)
    assert talk.listened == [100]
    talk.say("response.text", response_id="r1", delta=SENTENCE[:20])
    talk.say("response.text", response_id="r1", delta=SENTENCE[20:])
    talk.say("response.end", response_id="r1")
    talk.run()
    assert talk.fed() == talk.tokens(SENTENCE)
    done = talk.of("response.done")[0]
    sound = talk.sound("r1")
    assert done.status == "completed"
    assert sum(s.samples for s in sound) == done.audio_ms * 24
    assert done.sent_ms == done.audio_ms > 0
    assert done.heard_ms is None
    assert done.metadata == {"k": 1}
    assert done.metrics.text_tokens == len(talk.tokens(SENTENCE))
    item = talk.of("item.created")[0].item
    assert (item.id, item.role, item.text) == (started.item_id, "assistant", SENTENCE)
    assert (item.audio_ms, item.exact) == (done.audio_ms, True)
    assert talk.wire[-2:] == [done, talk.of("item.created")[0]]


@pytest.mark.parametrize("size", [1, 3, 7])
def test_any_cutting_gives_the_same_ids(talk, size):
    talk.start()
    for at in range(0, len(SENTENCE), size):
        talk.say("response.text", response_id="r1", delta=SENTENCE[at : at + size])
    talk.say("response.end", response_id="r1")
    assert talk.fed() == talk.tokens(SENTENCE)


def test_halves_of_a_surrogate_pair_are_joined_across_deltas(talk):
    talk.start()
    for delta in ("wave \ud83d", "\udc4b now", " \udc4b"):
        talk.say("response.text", response_id="r1", delta=delta)
    talk.say("response.end", response_id="r1")
    talk.run()
    assert talk.fed() == talk.tokens("wave \U0001f44b now \ufffd")
    assert talk.of("item.created")[0].item.text == "wave \U0001f44b now \ufffd"


@pytest.mark.parametrize("text", ["", " ", "\n \t", "\u3000"])
def test_blank_text_completes_with_no_sound(talk, text):
    talk.start(text=text, end=True)
    talk.run()
    done = talk.of("response.done")[0]
    assert (done.status, done.audio_ms, done.sent_ms) == ("completed", 0, 0)
    assert talk.fed() == []
    assert talk.of("item.created") == []
    assert [s.flags for s in talk.sound("r1")] == [
        Flags.FIRST | Flags.LAST_OF_SEGMENT | Flags.LAST_OF_RESPONSE
    ]


@pytest.mark.parametrize("text", ["a", "!", "...", "\U0001f44b", "\u4f60"])
def test_a_single_sign_is_spoken(talk, text):
    talk.start(text=text, end=True)
    talk.run()
    assert talk.of("response.done")[0].audio_ms > 0
    assert talk.fed() == talk.tokens(text)


def test_the_8001st_character_is_refused_and_not_applied(talk):
    talk.start(text="x" * 7999)
    talk.say("response.text", response_id="r1", delta="y")
    error = talk.say("response.text", response_id="r1", delta="zz")[0]
    assert (error.code, error.param) == ("text_too_long", "delta")
    assert "8000" in error.message
    assert (error.scope, error.response_id) == ("response", "r1")
    fits_but_would_follow_a_hole = talk.say("response.text", response_id="r1", delta="z")[0]
    assert fits_but_would_follow_a_hole.code == "text_too_long"
    talk.say("response.end", response_id="r1")
    talk.run()
    assert talk.of("item.created")[0].item.text == "x" * 7999 + "y"


def test_a_one_shot_that_is_too_long_does_not_start(talk):
    error = talk.start(text="x" * 8001, end=True)[0]
    assert error.code == "text_too_long"
    assert talk.opens() == []
    assert talk.start(text="x" * 8000, end=True)[0].type == "response.started"


# --- segments


def test_flush_closes_a_segment_and_text_opens_the_next(talk):
    talk.start(text="One two.")
    talk.say("response.flush", response_id="r1", event_id="f")
    talk.run()
    first = talk.of("response.segment")[0]
    assert (first.reply_to, first.index, first.chars) == ("f", 0, (0, 8))
    assert first.audio_start_ms == 0
    assert talk.sound("r1")[-1].flags == Flags.LAST_OF_SEGMENT
    talk.say("response.text", response_id="r1", delta=" Three four.")
    talk.say("response.end", response_id="r1", event_id="e")
    talk.run()
    second = talk.of("response.segment")[1]
    assert (second.reply_to, second.index, second.chars) == ("e", 1, (8, 20))
    assert second.audio_start_ms == first.audio_end_ms
    assert second.audio_end_ms == talk.of("response.done")[0].audio_ms
    kinds = [type(c) for c in talk.commands if isinstance(c, Feed | Flush | End)]
    assert kinds == [Feed, Flush, Feed, End] or kinds == [Feed, Feed, Flush, Feed, Feed, End]
    assert talk.fed() == talk.tokens("One two.") + talk.tokens(" Three four.")
    assert talk.of("item.created")[0].item.text == "One two. Three four."


def test_segments_are_turns_of_their_own_for_the_model(talk):
    talk.start(text="One two.")
    talk.say("response.flush", response_id="r1")
    talk.run()
    talk.say("response.text", response_id="r1", delta="Three four.")
    talk.say("response.end", response_id="r1")
    talk.run()
    talk.start("r2")
    grid = talk.opens()[1].grid
    assert (grid[:, 1] == 1025).sum() == 2  # a begin of audio for each
    frames = talk.of("response.done")[0].audio_ms / 80
    assert len(talk.opens()[1].decoder_codes) == frames


@pytest.mark.parametrize("blank", ["", "  "])
def test_a_blank_flush_is_answered_and_not_spoken(talk, blank):
    talk.start()
    if blank:
        talk.say("response.text", response_id="r1", delta=blank)
    report = talk.say("response.flush", response_id="r1", event_id="f")[0]
    assert (report.type, report.reply_to, report.chars) == (
        "response.segment",
        "f",
        (0, len(blank)),
    )
    assert (report.audio_start_ms, report.audio_end_ms) == (0, 0)
    talk.say("response.text", response_id="r1", delta="Hello.")
    talk.say("response.end", response_id="r1")
    talk.run()
    assert [s.index for s in talk.of("response.segment")] == [0, 1]
    assert not any(isinstance(c, Flush) for c in talk.commands)
    assert talk.of("response.done")[0].status == "completed"


def test_white_space_around_a_flush_is_kept(talk):
    talk.start(text="One ")
    talk.say("response.flush", response_id="r1")
    talk.say("response.text", response_id="r1", delta="\n")
    talk.say("response.text", response_id="r1", delta="two")
    talk.say("response.end", response_id="r1")
    assert talk.fed() == talk.tokens("One ") + talk.tokens("\ntwo")


def test_text_after_an_early_end_of_sound_opens_the_next_segment(talk):
    """The model ended the segment before its text was over: what it did not take is dropped."""
    talk.start(text=SENTENCE + " And mor")
    given = len(talk.fed())
    sound = np.zeros((10 * 1920, 1), np.float32)
    codes = np.zeros((10, 16), np.uint16)
    talk.event(Frames(100, 0, codes, np.ones(10, bool), sound, False))
    talk.event(Segment(100, 0, 10, given - 3, "eos"))
    flush, held = [c for c in talk.commands if isinstance(c, Feed | Flush)][-2:]
    assert isinstance(flush, Flush)
    talk.say("response.text", response_id="r1", delta="e.")
    talk.say("response.end", response_id="r1")
    talk.event(Frames(100, 10, codes, np.ones(10, bool), sound, False))
    talk.event(Segment(100, 1, 20, 99, "eos"))
    talk.event(Done(100, "completed", "", Counts()))
    encode, decode = talk.tokens, talk.text_of
    spoken = decode(talk.fed()[: given - 3])
    item = talk.of("item.created")[0].item
    assert item.text.startswith(spoken)
    assert item.text.endswith(decode(list(held.ids)) + "e.")
    assert talk.fed()[given:] == [*held.ids, *encode("e.")]
    first, second = talk.of("response.segment")
    assert first.chars[1] == len(spoken)
    assert second.chars[1] == len(SENTENCE + " And more.")
    assert (first.audio_end_ms, second.audio_end_ms) == (800, 1600)


def test_a_segment_index_that_nobody_sent_is_ignored(talk):
    talk.start(end=True)
    talk.event(Segment(100, 0, 0, 0, "eos"))
    talk.event(Done(100, "completed", "", Counts()))
    assert talk.of("response.segment") == []
    assert talk.of("response.done")[0].status == "completed"
