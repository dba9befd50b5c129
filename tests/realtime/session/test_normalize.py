"""`normalize`: words for the model, the client's own text for everyone else."""

from __future__ import annotations

import base64
import dataclasses

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.api import Counts, Done, Feed, Flush, Frames, Segment
from engine.models.realtime_prompt import Turn

WRITTEN = "## Price\nIt costs **$12.50** (see [the list](https://a.b/c)), or 5 km away."
SPOKEN = "Price.\nIt costs twelve dollars and fifty cents (see the list), or five kilometers away."


@pytest.fixture
def talk(new_talk):
    talk = new_talk()
    talk.say("session.start", normalize=True)
    return talk


def say(talk, *deltas, response_id="r1", **fields):
    talk.start(response_id, **fields)
    for delta in deltas:
        talk.say("response.text", response_id=response_id, delta=delta)
    talk.say("response.end", response_id=response_id)


def history(talk):
    return talk.say("history.get", audio=True)[0].items


def test_it_is_off_by_default_and_read_back(new_talk):
    talk = new_talk()
    assert talk.say("session.start")[0].normalize is False
    assert talk.say("session.update", stall_flush_ms=5)[0].normalize is False
    assert talk.say("session.update", normalize=True)[0].normalize is True
    assert talk.say("session.update", stall_flush_ms=6)[0].normalize is True
    say(talk, WRITTEN)
    assert talk.fed() == talk.tokens(SPOKEN)


def test_a_response_may_choose_for_itself(talk):
    say(talk, WRITTEN, response_id="r1", normalize=False)
    say(talk, WRITTEN, response_id="r2")
    talk.run()
    assert talk.fed(100) == talk.tokens(WRITTEN)
    assert talk.fed(101) == talk.tokens(SPOKEN)


@pytest.mark.parametrize("size", [1, 3, 7, 200])
def test_the_model_gets_words_and_history_keeps_the_text(talk, size):
    say(talk, *(WRITTEN[at : at + size] for at in range(0, len(WRITTEN), size)))
    talk.run()
    assert talk.fed() == talk.tokens(SPOKEN)
    (segment,) = talk.of("response.segment")
    assert segment.chars == (0, len(WRITTEN))
    item = talk.of("item.created")[0].item
    assert (item.text, item.spoken_text, item.generated_text) == (WRITTEN, SPOKEN, None)


def test_markup_alone_is_blank(talk):
    say(talk, "**", "\n---\n", "\U0001f389")
    talk.run()
    done = talk.of("response.done")[0]
    assert (done.status, done.audio_ms) == ("completed", 0)
    assert talk.of("response.segment")[0].chars == (0, 8)


def test_a_stall_releases_what_is_held(talk):
    talk.start(text="$5")
    assert talk.fed() == []
    talk.wait(800)
    assert talk.fed() == talk.tokens("five dollars")
    talk.say("response.text", response_id="r1", delta=" million")
    talk.say("response.end", response_id="r1")
    talk.run()
    assert talk.fed() == talk.tokens("five dollars") + talk.tokens("million")
    assert [s.chars for s in talk.of("response.segment")] == [(0, 2), (2, 10)]


def test_held_markup_is_no_reason_to_flush_again(talk):
    talk.start(text="**")
    talk.wait(5000)
    assert talk.fed() == []
    assert [s.chars for s in talk.of("response.segment")] == [(0, 2)]


@pytest.mark.parametrize(
    ("share", "text_end", "spoken_end"),
    [(0.5, "It costs **", "dollars and fifty"), (0.55, "$12.50**", "and fifty cents")],
)
def test_a_barge_in_keeps_the_text_that_was_heard(talk, share, text_end, spoken_end):
    say(talk, WRITTEN)
    talk.step(200)
    done_ms = talk.of("response.done")[0].audio_ms
    truncated = talk.say("interrupt", played={"response_id": "r1", "ms": share * done_ms})[-1]
    item = history(talk)[0]
    assert truncated.text == item.text
    assert WRITTEN.startswith(item.text)
    assert SPOKEN.startswith(item.spoken_text)
    assert item.text.endswith(text_end)
    assert item.spoken_text.endswith(spoken_end)
    talk.start("r2")
    assert_context(talk, item)


def test_the_clients_own_words_are_heard_as_words(talk):
    say(talk, WRITTEN)
    talk.run()
    heard = WRITTEN[: WRITTEN.index(" (see")]
    talk.say("interrupt", played={"response_id": "r1", "ms": 400, "text": heard})
    item = history(talk)[0]
    assert (item.text, item.exact) == (heard, True)
    assert item.spoken_text == "Price.\nIt costs twelve dollars and fifty cents"
    talk.start("r2")
    assert_context(talk, item)


def assert_context(talk, item):
    """The youngest row was opened with the item as its turn."""
    codes = np.frombuffer(item.audio.codes, "<u2").reshape(-1, 16).astype(np.uint16)
    ids = tuple(talk.tokens(item.spoken_text))
    prompt, voice = talk.session._prompt, talk.session._voices.default()
    grid = prompt.dialogue([Turn("assistant", ids, codes)], voice.codes)
    assert np.array_equal(talk.opens()[-1].grid, grid)


def test_an_item_given_back_makes_the_same_context(talk, new_talk):
    say(talk, WRITTEN)
    talk.run()
    item = history(talk)[0]
    talk.start("r2")
    other = new_talk()
    known = dataclasses.asdict(item)
    given = {k: known[k] for k in ("role", "text", "spoken_text")}
    other.say("session.start", history=[given | {"audio": {"codes": as_json(item)}}])
    other.start("r2")
    assert np.array_equal(other.opens()[-1].grid, talk.opens()[-1].grid)
    assert history(other)[0].spoken_text == SPOKEN


def as_json(item) -> str:
    return base64.b64encode(item.audio.codes).decode()


def test_text_after_an_early_end_of_sound_goes_on_with_what_was_held(talk):
    text = "The weather is lovely, and the trains are running on time. It is $5"
    talk.start(text=text)
    given = len(talk.fed())
    sound, codes = np.zeros((10 * 1920, 1), np.float32), np.zeros((10, 16), np.uint16)
    talk.event(Frames(100, 0, codes, np.ones(10, bool), sound, False))
    talk.event(Segment(100, 0, 10, given, "eos"))
    assert any(isinstance(c, Flush) for c in talk.commands)
    talk.say("response.text", response_id="r1", delta=" million.")
    talk.say("response.end", response_id="r1")
    talk.event(Frames(100, 10, codes, np.ones(10, bool), sound, False))
    talk.event(Segment(100, 1, 20, 99, "eos"))
    talk.event(Done(100, "completed", "", Counts()))
    assert talk.text_of(talk.fed()).endswith("It is five million dollars.")
    assert talk.of("item.created")[0].item.text == text + " million."
    assert [s.chars[1] for s in talk.of("response.segment")][-1] == len(text + " million.")


def test_the_limit_counts_what_was_written(talk):
    talk.start()
    for _ in range(4):
        assert talk.say("response.text", response_id="r1", delta="1 " * 1000) == []
    error = talk.say("response.text", response_id="r1", delta="1")[0]
    assert error.code == "text_too_long"
    assert len(talk.text_of(talk.fed())) > 8000 > 0


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    st.lists(
        st.sampled_from(
            [*"*_$`#- \n5", "Hello", " 12", ".50", " km", "[a](", "b)", "\ud83d", "x."]
        ),
        min_size=1,
        max_size=20,
    ),
    st.sets(st.integers(0, 20), max_size=3),
    st.integers(0, 4000),
)
def test_what_is_kept_is_the_beginning_of_what_was_written(new_talk, deltas, flushes, heard_ms):
    talk = new_talk()
    talk.say("session.start", normalize=True, stall_flush_ms=0)
    talk.start()
    for index, delta in enumerate(deltas):
        talk.say("response.text", response_id="r1", delta=delta)
        if index in flushes:
            talk.say("response.flush", response_id="r1")
            talk.step(3)
    talk.say("response.end", response_id="r1")
    talk.run()
    whole = "".join(deltas).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    feeds = [c for c in talk.commands if isinstance(c, Feed)]
    items = [message.item for message in talk.of("item.created")]
    assert bool(items) == bool(feeds)
    assert all(whole.startswith(item.text.rstrip()) or flushes for item in items)
    if items and not flushes:
        assert items[0].text == whole
    talk.say("interrupt", played={"response_id": "r1", "ms": heard_ms})
    for item in history(talk):
        assert items[0].text.startswith(item.text)
        assert spoken(items[0]).startswith(spoken(item))


def spoken(item) -> str:
    return item.text if item.spoken_text is None else item.spoken_text
