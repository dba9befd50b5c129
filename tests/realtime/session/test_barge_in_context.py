"""After a barge-in model and codec are where a session would be that never had the rest."""

from __future__ import annotations

import base64
import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api import Cancel, Warm
from engine.fake import FakeScript
from realtime.session.barge_in import BargeIn
from tests.realtime.session.conftest import MODEL, PROMPT, VOICES, make_talk

SENTENCES = ("Nice, welcome to Paris! ", "There is a lot to see, ", "我们走吧。", "and it is near.")


def replayed(talk) -> Any:
    """A fresh session that is given what this one has kept; of a reply just begun, nothing."""
    (capsule,) = talk.say("history.export")
    other = make_talk()
    other.say("session.start", capsule=base64.b64encode(capsule.data).decode())
    return other


def opened(talk) -> Any:
    talk.start("next", text="So.", end=True)
    return talk.opens()[-1]


def same_context(talk) -> None:
    warm = next(c for c in reversed(talk.commands) if isinstance(c, Warm))
    here, there = opened(talk), opened(replayed(talk))
    np.testing.assert_array_equal(here.grid, warm.grid)
    np.testing.assert_array_equal(here.grid, there.grid)
    np.testing.assert_array_equal(here.decoder_codes, there.decoder_codes)


turns = st.tuples(
    st.booleans(),  # the user says something first
    st.lists(st.sampled_from(SENTENCES), min_size=1, max_size=4),  # segments
    st.integers(0, 200),  # engine steps
    st.sampled_from(["interrupt", "cancel", "truncate", "end"]),
    st.floats(-50, 12_000),
)


def play(talk, number: int, turn: Any) -> None:
    user_first, segments, steps, ending, ms = turn
    response_id = f"r{number}"
    if user_first:
        talk.say("item.create", item={"role": "user", "text": f"Question {number}?"})
    talk.start(response_id)
    for segment in segments:
        talk.say("response.text", response_id=response_id, delta=segment)
        talk.say("response.flush", response_id=response_id)
    talk.say("response.end", response_id=response_id)
    talk.step(steps)
    if ending == "interrupt":
        talk.say("interrupt", played={"response_id": response_id, "ms": ms})
    elif ending == "cancel":
        talk.say("response.cancel", response_id=response_id, played_ms=ms)
    talk.run()
    if ending == "truncate":
        item_id = talk.of("response.started")[-1].item_id
        talk.say("item.truncate", item_id=item_id, audio_end_ms=ms)


@given(st.lists(turns, min_size=1, max_size=4))
def test_the_next_grid_is_that_of_a_replay_of_what_was_kept(script: list[Any]) -> None:
    talk = make_talk()
    talk.say("session.start")
    for number, turn in enumerate(script):
        play(talk, number, turn)
    talk.say("item.create", item={"role": "user", "text": "And then?"})
    same_context(talk)


def test_the_grid_is_what_the_prompt_builder_makes_of_the_kept_words_and_frames():
    talk = make_talk()
    talk.say("session.start")
    talk.say("item.create", item={"role": "user", "text": "Any ideas?"})
    talk.start("r1", text="".join(SENTENCES), end=True)
    talk.step(42)
    talk.say("interrupt", played={"response_id": "r1", "ms": 1310})
    user, assistant = talk.say("history.get", audio=True)[0].items
    kept = np.frombuffer(assistant.audio.codes, "<u2").reshape(-1, 16)
    expected = np.concatenate(
        [
            PROMPT.system(VOICES.default().codes),
            PROMPT.user_turn(user.text, None, first=True),
            PROMPT.assistant_header(),
            PROMPT.assistant_turn(talk.tokens(assistant.text), kept),
            PROMPT.assistant_header(),
        ]
    )
    np.testing.assert_array_equal(opened(talk).grid, expected)
    assert len(kept) == 16


def test_the_context_of_the_turns_before_stays_as_it_was():
    """What the engine has computed for them is found again: the new grid begins with theirs."""
    talk = make_talk()
    talk.say("session.start")
    talk.say("item.create", item={"role": "user", "text": "Any ideas?"})
    talk.start("r1", text="".join(SENTENCES), end=True)
    before = talk.opens()[-1].grid
    talk.step(42)
    talk.say("interrupt", played={"response_id": "r1", "ms": 1310})
    after = opened(talk).grid
    np.testing.assert_array_equal(after[: len(before)], before)


def test_the_check_would_notice_a_cut_that_was_forgotten(monkeypatch):
    def kept_whole(self, item_id, cut, heard, reply_to):
        self._send_truncated(item_id, cut, heard, reply_to)

    talk = make_talk()
    talk.say("session.start")
    talk.start("r1", text="".join(SENTENCES), end=True)
    talk.run()
    talk.say("interrupt", played={"response_id": "r1", "ms": 800})
    cut = replayed(talk)
    monkeypatch.setattr(BargeIn, "_shorten", kept_whole)
    other = make_talk()
    other.say("session.start")
    other.start("r1", text="".join(SENTENCES), end=True)
    other.run()
    other.say("interrupt", played={"response_id": "r1", "ms": 800})
    assert len(opened(cut).grid) != len(opened(other).grid)


# --- what was heard, in words


def at_400_ms_a_word(text: str) -> Any:
    """A reply, ended, whose words of one syllable took 400 ms each (five frames)."""
    script = FakeScript(model=MODEL, frames_per_id=5, tail_frames=0)
    talk = make_talk(script=script)
    talk.say("session.start")
    talk.start(text=text, end=True)
    talk.run()
    assert talk.of("response.done")[0].audio_ms == 400 * len(text.split())
    return talk


@pytest.mark.parametrize("place", range(0, 7))
def test_at_a_known_rate_the_words_heard_are_exactly_those_that_ended(place):
    text = one_id_a_word(6)
    for ms, heard in ((400 * place, place), (400 * place + 110, place), (400 * place + 399, place)):
        talk = at_400_ms_a_word(text)
        talk.say("interrupt", played={"response_id": "r1", "ms": ms})
        items = talk.say("history.get")[0].items
        kept = items[0].text.split() if items else []
        assert kept == text.split()[:heard]


def one_id_a_word(count: int) -> str:
    """Words of one syllable that the tokenizer gives one id each."""
    words = ("the", "a", "to", "of", "is", "that", "it", "on", "as", "he", "at", "his", "we")
    single = [w for w in words if len(PROMPT.tokenizer.encode(f" {w}")) == 1]
    first = next(w for w in single if len(PROMPT.tokenizer.encode(w)) == 1)
    rest = itertools.islice(itertools.cycle(single), count - 1)
    return " ".join([first, *rest])


# --- the race with the end


def test_whenever_an_interrupt_comes_a_response_ends_once():
    """At every step up to and beyond the end, before or after what the engine said is delivered."""
    endings = set()
    for steps, undelivered in itertools.product(range(60), (0, 1, 2)):
        talk = make_talk(script=FakeScript(model=MODEL, frames_per_id=1))
        talk.say("session.start")
        talk.start(text="One two three four five six.", end=True)
        talk.step(steps)
        for _ in range(undelivered):
            talk.engine.step()
        talk.say("interrupt")
        talk.deliver()
        talk.run()
        (done,) = talk.of("response.done")
        endings.add((done.status, steps < 5))
        frames = [m for m in talk.wire if getattr(m, "response_id", "") == "r1"]
        assert frames[-1] is done
        cancels = [c for c in talk.commands if isinstance(c, Cancel)]
        assert len(cancels) <= 1
        talk.start("r2", text="More.", end=True)
        talk.run()
        assert talk.of("response.done")[1].status == "completed"
        assert not talk.engine._running
    assert {status for status, _ in endings} == {"cancelled", "completed"}
