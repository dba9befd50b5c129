"""Word times: in order, inside the sound that was sent, and over when the response is."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.fake import FakeScript
from realtime.session.row_events import RowEvents
from tests.realtime.session.conftest import MODEL, Sound, make_talk

TEXT = "Nice, welcome to Paris! There is a lot to see, and all of it is a short walk away."


def words_of(talk, response_id="r1"):
    return [w for m in talk.of("response.words") if m.response_id == response_id for w in m.words]


def talk_with_words(**fields):
    talk = make_talk()
    talk.say("session.start", timestamps="words", **fields)
    return talk


def check(talk, response_id="r1") -> None:
    """Every rule that holds at all times."""
    sent_ms, done = 0.0, False
    at_ms = 0.0
    for entry in talk.wire:
        if isinstance(entry, Sound):
            if entry.response_id == response_id:
                sent_ms += entry.samples / 24
        elif entry.type == "response.done" and entry.response_id == response_id:
            done = True
        elif entry.type == "response.words" and entry.response_id == response_id:
            assert not done, "no word follows the end"
            assert entry.exact is False
            assert entry.words
            for text, start_ms, end_ms in entry.words:
                assert text == text.strip() != ""
                assert at_ms - 1e-6 <= start_ms <= end_ms <= sent_ms + 1e-6
                at_ms = end_ms


def test_without_asking_there_are_none(talk):
    talk.start(text=TEXT, end=True)
    talk.run()
    assert words_of(talk) == []
    assert talk.of("session.started")[0].timestamps == "none"


def test_every_word_of_a_reply_is_told_once():
    talk = talk_with_words()
    assert talk.of("session.started")[0].timestamps == "words"
    talk.start(text=TEXT, end=True)
    talk.run()
    check(talk)
    assert [w[0] for w in words_of(talk)] == TEXT.split()
    assert words_of(talk)[0][1] == 0


def test_words_left_at_the_end_share_what_is_left_of_the_sound(new_talk):
    talk = new_talk(script=FakeScript(model=MODEL, frames_per_id=1))  # faster than was thought
    talk.say("session.start", timestamps="words")
    talk.start(text=TEXT, end=True)
    talk.run()
    check(talk)
    assert [w[0] for w in words_of(talk)] == TEXT.split()
    assert words_of(talk)[-1][2] == pytest.approx(talk.of("response.done")[0].audio_ms)


def test_words_come_while_the_reply_is_spoken():
    talk = talk_with_words()
    talk.start(text=TEXT, end=True)
    talk.step(20)
    told = words_of(talk)
    assert 2 < len(told) < len(TEXT.split())
    assert told[-1][2] <= 20 * 80
    check(talk)


def test_a_word_is_not_told_while_it_may_grow():
    talk = talk_with_words()
    talk.start(text="one two three four five six seven eight nine ten eleven twelve thir")
    talk.run()
    before = [w[0] for w in words_of(talk)]
    assert before
    assert not before[-1].startswith("thir")
    talk.say("response.text", response_id="r1", delta="teen.")
    talk.say("response.end", response_id="r1")
    talk.run()
    assert words_of(talk)[-1][0] == "thirteen."
    check(talk)


def test_segments_keep_to_their_own_sound():
    talk = talk_with_words()
    talk.start(text="One two three.")
    for text in (" Four five.", " Six <|im_end|> 七八九。"):
        talk.say("response.flush", response_id="r1")
        talk.say("response.text", response_id="r1", delta=text)
    talk.say("response.end", response_id="r1")
    talk.run()
    check(talk)
    told = words_of(talk)
    assert [w[0] for w in told] == [
        *("One", "two", "three.", "Four", "five.", "Six", "<|im_end|>", "七", "八", "九。")
    ]
    spans = [(s.audio_start_ms, s.audio_end_ms) for s in talk.of("response.segment")]
    for (start_ms, end_ms), words in zip(spans, (told[:3], told[3:5], told[5:]), strict=True):
        assert start_ms == words[0][1]
        assert words[-1][2] <= end_ms


def test_after_an_interrupt_no_word_follows_and_none_was_told_that_was_not_sent():
    for steps in range(0, 60, 7):
        talk = talk_with_words()
        talk.instant = False
        talk.start(text=TEXT, end=True)
        talk.step(steps)
        talk.drain(steps // 2)
        talk.say("interrupt")
        talk.drain()
        talk.run()
        talk.drain()
        check(talk)
        assert len(talk.of("response.done")) == 1


def test_normalized_words_are_told_as_they_were_written():
    talk = talk_with_words(normalize=True)
    text = "It costs **$12.50** at 10:30, see https://example.com/a now."
    talk.start(text=text, end=True)
    talk.run()
    check(talk)
    told = " ".join(w[0] for w in words_of(talk))
    assert "$12.50" in told
    assert told.replace(" ", "") in text.replace(" ", "")


def test_an_update_asks_for_words_from_the_next_response_on(talk):
    talk.say("session.update", timestamps="words")
    assert talk.of("session.updated")[0].timestamps == "words"
    talk.start(text=TEXT, end=True)
    talk.run()
    assert [w[0] for w in words_of(talk)] == TEXT.split()


@given(
    pieces=st.lists(st.text("aeiou bcd.,!七 ", min_size=1, max_size=30), min_size=1, max_size=6),
    flushes=st.sets(st.integers(0, 5)),
    steps=st.lists(st.integers(0, 12), min_size=6, max_size=6),
    interrupted=st.booleans(),
)
def test_times_are_in_order_whatever_comes_when(
    pieces: list[str], flushes: set[int], steps: list[int], interrupted: bool
) -> None:
    talk = talk_with_words()
    talk.start()
    for index, (piece, ticks) in enumerate(zip(pieces, itertools.cycle(steps))):
        talk.say("response.text", response_id="r1", delta=piece)
        if index in flushes:
            talk.say("response.flush", response_id="r1")
        talk.step(ticks)
    talk.say("interrupt") if interrupted else talk.say("response.end", response_id="r1")
    talk.run()
    check(talk)
    if not interrupted:
        told = "".join(w[0] for w in words_of(talk))
        assert told.split() == "".join("".join(pieces).split()).split()


def test_the_check_would_notice_words_ahead_of_their_sound(monkeypatch):
    tell = RowEvents._tell_words

    def early(self, response):
        response.playback.sent_ms += 1000
        tell(self, response)
        response.playback.sent_ms -= 1000

    monkeypatch.setattr(RowEvents, "_tell_words", early)
    talk = talk_with_words()
    talk.start(text=TEXT, end=True)
    talk.run()
    with pytest.raises(AssertionError):
        check(talk)
