"""Text deltas have a rate: what comes too fast is refused without a word lost or spoken twice."""

from __future__ import annotations

import dataclasses

import pytest

from engine.api import End
from realtime.protocol.limits import DEFAULT_LIMITS
from realtime.protocol.pace import Pace
from realtime.session.settings import SessionConfig

LIMITS = dataclasses.replace(DEFAULT_LIMITS, text_deltas_per_s=100, text_delta_burst=5)


def test_a_bucket_gives_its_burst_then_its_rate() -> None:
    pace = Pace(per_s=100, burst=5)
    now_ms = 1_000_000.0
    assert [pace.take(now_ms) for _ in range(6)] == [0, 0, 0, 0, 0, 10]
    assert pace.take(now_ms + 4) == pytest.approx(6)
    assert pace.take(now_ms + 10) == 0
    assert pace.take(now_ms + 10) > 0
    assert [pace.take(now_ms + 60_000) > 0 for _ in range(6)] == [False] * 5 + [True]
    assert pace.take(now_ms) > 0, "a clock that goes back gives nothing"
    later_ms = now_ms + 120_000
    assert [pace.reserve(later_ms) for _ in range(7)] == [0, 0, 0, 0, 0, 10, 20]


def test_a_delta_too_many_is_awaited_again_and_nothing_after_it_is_applied(new_talk) -> None:
    talk = new_talk(config=SessionConfig(limits=LIMITS))
    [started] = talk.say("session.start")
    limits = started.limits
    assert (limits.text_deltas_per_s, limits.text_delta_burst) == (100, 5)
    talk.start("r1")
    words = [f"word{n} " for n in range(12)]
    numbered = [{"m": 3 + n, "delta": word} for n, word in enumerate(words)]
    answers = [talk.say("response.text", response_id="r1", **fields) for fields in numbered]
    assert [len(answer) for answer in answers] == [0] * 5 + [1] * 7
    [limited] = answers[5]
    assert (limited.code, limited.retryable, limited.retry_after_ms, limited.expected) == (
        *("rate_limited", True, 10, 8),
    )
    assert {answer[0].code for answer in answers[6:]} == {"sequence_gap"}
    assert {answer[0].expected for answer in answers[6:]} == {8}

    sent = 5  # the client does as it was told: it waits, and sends on from there
    while sent < len(numbered):
        answer = talk.say("response.text", response_id="r1", **numbered[sent])
        if answer:
            talk.wait(answer[0].retry_after_ms)
        else:
            sent += 1
    talk.say("response.end", response_id="r1", m=15)
    assert talk.text_of(talk.fed()) == "".join(words)
    assert sum(isinstance(command, End) for command in talk.commands) == 1
    assert talk.closed is None


def test_only_text_has_a_rate(new_talk) -> None:
    talk = new_talk(config=SessionConfig(limits=LIMITS))
    talk.say("session.start")
    talk.start("r1")
    for _ in range(50):
        assert [answer.type for answer in talk.say("ping", t=1.0)] == ["pong"]
        assert talk.say("playback", response_id="r1", played_ms=0) == []
    talk.say("interrupt")
    assert talk.of("response.done")[0].status == "cancelled"
