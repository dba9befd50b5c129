"""Responses: text rules, segments, starvation, limits, how they end."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from engine.api import (
    Cancel,
    Counts,
    Done,
    End,
    Feed,
    Flush,
    Frames,
    Parked,
    Refused,
    Resumed,
    Sampling,
    Segment,
)
from engine.fake import FAKE_MODEL, FakeScript
from engine.text.plain import PlainTokenizer
from realtime.protocol.frames import Flags

TINY = Path(__file__).parents[2] / "vectors" / "realtime" / "tiny"
TOKENIZER = PlainTokenizer.from_file(TINY / "tokenizer.json")
MODEL = dataclasses.replace(FAKE_MODEL, n_vq=16)
SENTENCE = "The weather is lovely, and the trains are running on time today."


def start(talk, response_id="r1", **fields):
    return talk.say("response.start", response_id=response_id, **fields)


def fed(talk, row=100) -> list[int]:
    return [i for c in talk.commands if isinstance(c, Feed) and c.row == row for i in c.ids]


def tokens(text: str) -> list[int]:
    return TOKENIZER.encode(text)


def test_a_response_from_start_to_done(talk):
    started = start(talk, event_id="s", metadata={"k": 1})[0]
    assert (started.type, started.reply_to, started.position) == ("response.started", "s", 0)
    assert (started.context, started.epoch, started.stream) == ("conversation", 0, 1)
    assert talk.listened == [100]
    talk.say("response.text", response_id="r1", delta=SENTENCE[:20])
    talk.say("response.text", response_id="r1", delta=SENTENCE[20:])
    talk.say("response.end", response_id="r1")
    talk.run()
    assert fed(talk) == tokens(SENTENCE)
    done = talk.of("response.done")[0]
    sound = talk.sound("r1")
    assert done.status == "completed"
    assert sum(s.samples for s in sound) == done.audio_ms * 24
    assert done.sent_ms == done.audio_ms > 0
    assert done.heard_ms is None
    assert done.metadata == {"k": 1}
    assert done.metrics.text_tokens == len(tokens(SENTENCE))
    item = talk.of("item.created")[0].item
    assert (item.id, item.role, item.text) == (started.item_id, "assistant", SENTENCE)
    assert (item.audio_ms, item.exact) == (done.audio_ms, True)
    assert talk.wire[-2:] == [done, talk.of("item.created")[0]]


@pytest.mark.parametrize("size", [1, 3, 7])
def test_any_cutting_gives_the_same_ids(talk, size):
    start(talk)
    for at in range(0, len(SENTENCE), size):
        talk.say("response.text", response_id="r1", delta=SENTENCE[at : at + size])
    talk.say("response.end", response_id="r1")
    assert fed(talk) == tokens(SENTENCE)


def test_halves_of_a_surrogate_pair_are_joined_across_deltas(talk):
    start(talk)
    for delta in ("wave \ud83d", "\udc4b now", " \udc4b"):
        talk.say("response.text", response_id="r1", delta=delta)
    talk.say("response.end", response_id="r1")
    talk.run()
    assert fed(talk) == tokens("wave \U0001f44b now \ufffd")
    assert talk.of("item.created")[0].item.text == "wave \U0001f44b now \ufffd"


@pytest.mark.parametrize("text", ["", " ", "\n \t", "\u3000"])
def test_blank_text_completes_with_no_sound(talk, text):
    start(talk, text=text, end=True)
    talk.run()
    done = talk.of("response.done")[0]
    assert (done.status, done.audio_ms, done.sent_ms) == ("completed", 0, 0)
    assert fed(talk) == []
    assert talk.of("item.created") == []
    assert [s.flags for s in talk.sound("r1")] == [
        Flags.FIRST | Flags.LAST_OF_SEGMENT | Flags.LAST_OF_RESPONSE
    ]


@pytest.mark.parametrize("text", ["a", "!", "...", "\U0001f44b", "\u4f60"])
def test_a_single_sign_is_spoken(talk, text):
    start(talk, text=text, end=True)
    talk.run()
    assert talk.of("response.done")[0].audio_ms > 0
    assert fed(talk) == tokens(text)


def test_the_8001st_character_is_refused_and_not_applied(talk):
    start(talk, text="x" * 7999)
    talk.say("response.text", response_id="r1", delta="y")
    error = talk.say("response.text", response_id="r1", delta="zz")[0]
    assert (error.code, error.param) == ("text_too_long", "delta")
    assert "8000" in error.message
    talk.say("response.end", response_id="r1")
    talk.run()
    assert talk.of("item.created")[0].item.text == "x" * 7999 + "y"


def test_a_one_shot_that_is_too_long_does_not_start(talk):
    error = start(talk, text="x" * 8001, end=True)[0]
    assert error.code == "text_too_long"
    assert talk.opens() == []
    assert start(talk, text="x" * 8000, end=True)[0].type == "response.started"


# --- segments


def test_flush_closes_a_segment_and_text_opens_the_next(talk):
    start(talk, text="One two.")
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
    assert fed(talk) == tokens("One two.") + tokens(" Three four.")
    assert talk.of("item.created")[0].item.text == "One two. Three four."


def test_segments_are_turns_of_their_own_for_the_model(talk):
    start(talk, text="One two.")
    talk.say("response.flush", response_id="r1")
    talk.run()
    talk.say("response.text", response_id="r1", delta="Three four.")
    talk.say("response.end", response_id="r1")
    talk.run()
    start(talk, "r2")
    grid = talk.opens()[1].grid
    assert (grid[:, 1] == 1025).sum() == 2  # a begin of audio for each
    frames = talk.of("response.done")[0].audio_ms / 80
    assert len(talk.opens()[1].decoder_codes) == frames


@pytest.mark.parametrize("blank", ["", "  "])
def test_a_blank_flush_is_answered_and_not_spoken(talk, blank):
    start(talk)
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
    start(talk, text="One ")
    talk.say("response.flush", response_id="r1")
    talk.say("response.text", response_id="r1", delta="\n")
    talk.say("response.text", response_id="r1", delta="two")
    talk.say("response.end", response_id="r1")
    assert fed(talk) == tokens("One ") + tokens("\ntwo")


def test_text_after_an_early_end_of_sound_opens_the_next_segment(talk):
    """The model ended the segment before its text was over: what it did not take is dropped."""
    start(talk, text=SENTENCE + " And mor")
    given = len(fed(talk))
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
    encode, decode = TOKENIZER.encode, TOKENIZER.decode
    spoken = decode(fed(talk)[: given - 3])
    item = talk.of("item.created")[0].item
    assert item.text.startswith(spoken)
    assert item.text.endswith(decode(list(held.ids)) + "e.")
    assert fed(talk)[given:] == [*held.ids, *encode("e.")]
    first, second = talk.of("response.segment")
    assert first.chars[1] == len(spoken)
    assert second.chars[1] == len(SENTENCE + " And more.")
    assert (first.audio_end_ms, second.audio_end_ms) == (800, 1600)


def test_a_segment_index_that_nobody_sent_is_ignored(talk):
    start(talk, end=True)
    talk.event(Segment(100, 0, 0, 0, "eos"))
    talk.event(Done(100, "completed", "", Counts()))
    assert talk.of("response.segment") == []
    assert talk.of("response.done")[0].status == "completed"


# --- starvation


def test_a_stall_before_the_first_sound_flushes(talk):
    start(talk, text="Hi there")
    talk.wait(799)
    assert not any(isinstance(c, Flush) for c in talk.commands)
    talk.wait(1)
    assert isinstance(talk.commands[-1], Flush)
    talk.run()
    assert talk.of("response.segment")[0].audio_end_ms > 0
    assert talk.of("response.segment")[0].reply_to is None


def test_text_that_keeps_coming_is_no_stall(talk):
    start(talk)
    for _ in range(5):
        talk.say("response.text", response_id="r1", delta="so ")
        talk.wait(700)
    assert not any(isinstance(c, Flush) for c in talk.commands)


def test_a_stall_while_speaking_flushes_the_held_text(talk):
    start(talk, text=SENTENCE)
    talk.run()
    assert talk.of("response.stalled")[-1].why == "text"
    talk.wait(800)
    talk.run()
    assert talk.of("response.resumed")[-1].why == "text"
    assert talk.of("response.segment")[0].chars == (0, len(SENTENCE))
    assert fed(talk) == tokens(SENTENCE)


def test_a_row_that_is_speaking_is_not_starved(talk):
    start(talk, text=SENTENCE)
    talk.step(3)
    talk.wait(50_000)
    assert not any(isinstance(c, Flush) for c in talk.commands)


def test_the_stall_clock_of_a_queued_response_starts_at_its_turn(talk):
    start(talk, "r1", text="Hello.")
    start(talk, "r2", text="World")
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
    start(talk, text="Hi there")
    talk.wait(59_000)
    assert not any(isinstance(c, Flush) for c in talk.commands)


def test_text_that_never_comes_times_out(talk):
    start(talk, text="Hi there")
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
    start(talk, text="Hi there", end=True)
    talk.wait(120_000)
    assert talk.of("response.done") == []


# --- who may speak


def test_conversation_responses_wait_for_each_other(talk):
    positions = [start(talk, f"r{i}", text="Hi.", end=True)[0].position for i in range(3)]
    assert positions == [0, 1, 2]
    assert len(talk.opens()) == 1
    talk.run()
    assert len(talk.opens()) == 3
    assert [d.response_id for d in talk.of("response.done")] == ["r0", "r1", "r2"]
    assert len(talk.opens()[2].decoder_codes) > len(talk.opens()[1].decoder_codes) > 0


def test_the_queue_has_a_limit(talk):
    for i in range(9):
        assert start(talk, f"r{i}")[0].type == "response.started"
    error = start(talk, "r9")[0]
    assert (error.code, error.response_id, error.retryable) == ("rate_limited", "r9", True)
    talk.say("response.cancel", response_id="r5")
    assert start(talk, "r9")[0].type == "response.started"


def test_four_responses_without_context_run_beside(talk):
    start(talk, "main")
    for i in range(4):
        started = start(talk, f"x{i}", context="none", text="Hm.", end=True)[0]
        assert (started.position, started.context) == (0, "none")
    assert start(talk, "x4", context="none")[0].code == "rate_limited"
    assert len(talk.opens()) == 5
    talk.run()
    assert {d.response_id for d in talk.of("response.done")} == {"x0", "x1", "x2", "x3"}
    assert talk.of("item.created") == []
    assert talk.say("history.get")[0].items == ()


def test_commit_false_leaves_no_trace(talk):
    talk.say("item.create", item={"role": "user", "text": "Hello?"})
    start(talk, commit=False, text="Hm.", end=True)
    talk.run()
    assert [i.role for i in talk.say("history.get")[0].items] == ["user"]
    start(talk, "r2")
    assert (talk.opens()[0].grid == talk.opens()[1].grid).all()


def test_a_list_as_context_is_later(talk):
    assert start(talk, context=["item_1"])[0].code == "unsupported"


def test_ids_are_not_used_twice(talk):
    start(talk, text="Hi.", end=True)
    assert start(talk)[0].code == "duplicate_response"
    talk.run()
    error = start(talk)[0]
    assert (error.code, error.response_id, error.scope) == ("duplicate_response", "r1", "response")


def test_streams_and_items_are_distinct(talk):
    started = [start(talk, f"r{i}")[0] for i in range(3)]
    assert len({s.stream for s in started}) == len({s.item_id for s in started}) == 3


# --- sampling


def test_sampling_falls_back_from_request_to_session_to_model(new_talk):
    talk = new_talk()
    talk.say("session.start", generation={"temperature": 0.3, "top_p": 0.5})
    start(talk, context="none", generation={"temperature": 0, "max_audio_s": 2})
    opened = talk.opens()[0]
    assert opened.sampling == Sampling(0.0, 0.5, 30, 1.1, 50)
    assert opened.max_frames == 25
    start(talk, "r2", context="none")
    assert talk.opens()[1].max_frames == 7500


def test_seeds(new_talk):
    def seeds(seed: int | None, own: int | None = None) -> list[int]:
        talk = new_talk()
        talk.say("session.start", **({"generation": {"seed": seed}} if seed is not None else {}))
        for i in range(3):
            generation = {"generation": {"seed": own}} if own is not None and i == 1 else {}
            start(talk, f"r{i}", context="none", **generation)
        started = [s.seed for s in talk.of("response.started")]
        assert started == [o.seed for o in talk.opens()]
        return started

    assert seeds(5) == seeds(5)
    assert len({*seeds(5), *seeds(6), *seeds(None)}) == 9
    assert seeds(5, own=77)[1] == 77
    assert seeds(5, own=77)[2] == seeds(5)[2]
    assert all(seed < 2**53 for seed in seeds(None))


# --- how it ends


@pytest.mark.parametrize(
    ("reason", "error", "status", "why", "code"),
    [
        ("max_audio", "", "incomplete", "max_audio", None),
        ("context", "", "incomplete", "context", None),
        ("guard:runaway", "", "incomplete", "guard", None),
        ("cancelled", "", "failed", None, "internal"),
        ("failed", "CUDA fell over at 0x1234", "failed", None, "internal"),
        ("failed", "engine_restarted: gone", "failed", None, "engine_restarted"),
        ("completed", "", "failed", None, "no_audio"),
    ],
)
def test_the_engines_reasons(talk, reason, error, status, why, code):
    start(talk, text=SENTENCE, end=True)
    talk.event(Done(100, reason, error, Counts(steps=3)))
    done = talk.of("response.done")[0]
    assert (done.status, done.reason) == (status, why)
    assert (done.error.code if done.error else None) == code
    if done.error:
        assert done.error.retryable == (code in ("internal", "engine_restarted"))
        assert "0x1234" not in done.error.message
    assert done.metrics.steps == 3
    assert talk.of("item.created") == []


def test_a_refused_row_says_when_to_come_back(new_talk):
    talk = new_talk(script=None)
    talk.say("session.start")
    start(talk, text="Hi.", end=True)
    talk.event(Refused(100, "overloaded", "all 16 rows are taken", 1500))
    done = talk.of("response.done")[0]
    assert (done.status, done.error.code) == ("failed", "overloaded")
    assert (done.error.retryable, done.error.retry_after_ms) == (True, 1500)
    assert start(talk, "r2", text="Hi.", end=True)[0].position == 0


def test_a_failure_half_way_keeps_what_was_spoken(new_talk):
    talk = new_talk(script=FakeScript(model=MODEL, fail_after_frames=20))
    talk.say("session.start")
    start(talk, text=SENTENCE, end=True)
    talk.run()
    done = talk.of("response.done")[0]
    assert (done.status, done.audio_ms) == ("failed", 1600)
    item = talk.of("item.created")[0].item
    assert item.audio_ms == 1600
    assert 0 < len(item.text) < len(SENTENCE)
    assert SENTENCE.startswith(item.text)
    assert item.exact is False


def test_text_after_the_end(talk):
    start(talk, text="Hi.", end=True)
    error = talk.say("response.text", response_id="r1", delta="more", event_id="t")[0]
    assert (error.code, error.scope) == ("unknown_response", "response")
    assert (error.response_id, error.reply_to) == ("r1", "t")
    talk.run()
    for kind, fields in (("text", {"delta": "x"}), ("flush", {}), ("end", {})):
        error = talk.say(f"response.{kind}", response_id="r1", **fields)[0]
        assert error.code == "unknown_response"
        error = talk.say(f"response.{kind}", response_id="never", **fields)[0]
        assert error.code == "unknown_response"


def test_text_after_a_cancel_is_dropped_silently(talk):
    start(talk, text="Hi.")
    talk.say("response.cancel", response_id="r1")
    for kind, fields in (("text", {"delta": "x"}), ("flush", {}), ("end", {}), ("cancel", {})):
        assert talk.say(f"response.{kind}", response_id="r1", **fields) == []
    assert talk.say("playback", response_id="r1", played_ms=1) == []


def test_pauses_are_reported(talk):
    start(talk, text=SENTENCE)
    talk.event(Parked(100, "flow"))
    talk.event(Resumed(100, "flow"))
    assert [m.type for m in talk.messages()[-2:]] == ["response.stalled", "response.resumed"]
    assert talk.messages()[-1].why == "flow"
