"""Which responses speak, with which sampling and seed, and how they end."""

from __future__ import annotations

import dataclasses

import pytest

from engine.api import (
    Counts,
    Done,
    Parked,
    Refused,
    Resumed,
    Sampling,
)
from engine.fake import FAKE_MODEL, FakeScript

MODEL = dataclasses.replace(FAKE_MODEL, n_vq=16)
SENTENCE = "The weather is lovely, and the trains are running on time today."


# --- who may speak


def test_conversation_responses_wait_for_each_other(talk):
    positions = [talk.start(f"r{i}", text="Hi.", end=True)[0].position for i in range(3)]
    assert positions == [0, 1, 2]
    assert len(talk.opens()) == 1
    talk.run()
    assert len(talk.opens()) == 3
    assert [d.response_id for d in talk.of("response.done")] == ["r0", "r1", "r2"]
    assert len(talk.opens()[2].decoder_codes) > len(talk.opens()[1].decoder_codes) > 0


def test_the_queue_has_a_limit(talk):
    for i in range(9):
        assert talk.start(f"r{i}")[0].type == "response.started"
    error = talk.start("r9")[0]
    assert (error.code, error.response_id, error.retryable) == ("rate_limited", "r9", True)
    talk.say("response.cancel", response_id="r5")
    assert talk.start("r9")[0].type == "response.started"


def test_four_responses_without_context_run_beside(talk):
    talk.start("main")
    for i in range(4):
        started = talk.start(f"x{i}", context="none", text="Hm.", end=True)[0]
        assert (started.position, started.context) == (0, "none")
    assert talk.start("x4", context="none")[0].code == "rate_limited"
    assert len(talk.opens()) == 5
    talk.run()
    assert {d.response_id for d in talk.of("response.done")} == {"x0", "x1", "x2", "x3"}
    assert talk.of("item.created") == []
    assert talk.say("history.get")[0].items == ()


def test_commit_false_leaves_no_trace(talk):
    talk.say("item.create", item={"role": "user", "text": "Hello?"})
    talk.start(commit=False, text="Hm.", end=True)
    talk.run()
    assert [i.role for i in talk.say("history.get")[0].items] == ["user"]
    talk.start("r2")
    assert (talk.opens()[0].grid == talk.opens()[1].grid).all()


def test_a_list_as_context_is_later(talk):
    assert talk.start(context=["item_1"])[0].code == "unsupported"


def test_ids_are_not_used_twice(talk):
    talk.start(text="Hi.", end=True)
    assert talk.start()[0].code == "duplicate_response"
    talk.run()
    error = talk.start()[0]
    assert (error.code, error.response_id, error.scope) == ("duplicate_response", "r1", "response")


def test_streams_and_items_are_distinct(talk):
    started = [talk.start(f"r{i}")[0] for i in range(3)]
    assert len({s.stream for s in started}) == len({s.item_id for s in started}) == 3


# --- sampling


def test_sampling_falls_back_from_request_to_session_to_model(new_talk):
    talk = new_talk()
    talk.say("session.start", generation={"temperature": 0.3, "top_p": 0.5})
    talk.start(context="none", generation={"temperature": 0, "max_audio_s": 2})
    opened = talk.opens()[0]
    assert opened.sampling == Sampling(0.0, 0.5, 30, 1.1, 50)
    assert opened.max_frames == 25
    talk.start("r2", context="none")
    assert talk.opens()[1].max_frames == 7500


def test_seeds(new_talk):
    def seeds(seed: int | None, own: int | None = None) -> list[int]:
        talk = new_talk()
        talk.say("session.start", **({"generation": {"seed": seed}} if seed is not None else {}))
        for i in range(3):
            generation = {"generation": {"seed": own}} if own is not None and i == 1 else {}
            talk.start(f"r{i}", context="none", **generation)
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
        ("completed", "", "failed", None, "no_audio"),
    ],
)
def test_the_engines_reasons(talk, reason, error, status, why, code):
    talk.start(text=SENTENCE, end=True)
    talk.event(Done(100, reason, error, Counts(steps=3)))
    done = talk.of("response.done")[0]
    assert (done.status, done.reason) == (status, why)
    assert (done.error.code if done.error else None) == code
    if done.error:
        assert done.error.retryable == (code == "internal")
        assert "0x1234" not in done.error.message
    assert done.metrics.steps == 3
    assert talk.of("item.created") == []


def test_a_refused_row_says_when_to_come_back(new_talk):
    talk = new_talk(script=None)
    talk.say("session.start")
    talk.start(text="Hi.", end=True)
    talk.event(Refused(100, "overloaded", "all 16 rows are taken", 1500))
    done = talk.of("response.done")[0]
    assert (done.status, done.error.code) == ("failed", "overloaded")
    assert (done.error.retryable, done.error.retry_after_ms) == (True, 1500)
    assert talk.start("r2", text="Hi.", end=True)[0].position == 0


def test_a_failure_half_way_keeps_what_was_spoken(new_talk):
    talk = new_talk(script=FakeScript(model=MODEL, fail_after_frames=20))
    talk.say("session.start")
    talk.start(text=SENTENCE, end=True)
    talk.run()
    done = talk.of("response.done")[0]
    assert (done.status, done.audio_ms) == ("failed", 1600)
    item = talk.of("item.created")[0].item
    assert item.audio_ms == 1600
    assert 0 < len(item.text) < len(SENTENCE)
    assert SENTENCE.startswith(item.text)
    assert item.exact is False


def test_text_after_the_end(talk):
    talk.start(text="Hi.", end=True)
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
    talk.start(text="Hi.")
    talk.say("response.cancel", response_id="r1")
    for kind, fields in (("text", {"delta": "x"}), ("flush", {}), ("end", {}), ("cancel", {})):
        assert talk.say(f"response.{kind}", response_id="r1", **fields) == []
    assert talk.say("playback", response_id="r1", played_ms=1) == []


def test_pauses_are_reported(talk):
    talk.start(text=SENTENCE)
    talk.event(Parked(100, "flow"))
    talk.event(Resumed(100, "flow"))
    assert [m.type for m in talk.messages()[-2:]] == ["response.stalled", "response.resumed"]
    assert talk.messages()[-1].why == "flow"
