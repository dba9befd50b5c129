"""The timeline of a row, on a clock that the test turns: its line, its lead, its trace."""

from __future__ import annotations

import itertools
import logging
from typing import Any

import numpy as np
import pytest

from engine.api import (
    Cancel,
    Counts,
    Done,
    End,
    Feed,
    Frames,
    Open,
    Parked,
    Played,
    Refused,
    Resumed,
    Sampling,
    Segment,
    Sent,
)
from engine.fake import FAKE_MODEL
from realtime.server.row_log import KEPT_RECORDS, MOST_NOTES, RowLog, RowRecord
from realtime.server.row_trace import trace

FRAME = FAKE_MODEL.samples_per_frame  # 80 ms


class Rows(RowLog):
    """A log whose clock the test turns, in milliseconds."""

    def __init__(self) -> None:
        self.at_ms = 1000.0
        super().__init__(lambda: int(self.at_ms * 1e6))
        self.leads_ms: list[float] = []
        self.ended: list[RowRecord] = []
        self.on_lead = lambda record, lead_s: self.leads_ms.append(1000 * lead_s)
        self.on_end = self.ended.append

    def open(self, row: int = 1, lane: Any = "live") -> None:
        empty = np.zeros((0, FAKE_MODEL.n_vq), np.uint16)
        grid = np.zeros((9, 1 + FAKE_MODEL.n_vq), np.int32)
        sampling, name = Sampling(), FAKE_MODEL.name
        command = Open(row, name, grid, empty, empty, 0, sampling, lane, 0, 2000, 100)
        self.opened(command, FAKE_MODEL)

    def frames(self, count: int, row: int = 1) -> None:
        codes = np.zeros((count, FAKE_MODEL.n_vq), np.uint16)
        pcm = np.zeros((count * FRAME, 1), np.float32)
        self.event(Frames(row, 0, codes, np.ones(count, np.bool_), pcm, discontinuity=False))

    def after(self, ms: float) -> None:
        self.at_ms += ms


def a_reply(rows: Rows) -> None:
    """Text, four chunks of which the third is late, a wait for text, the rest."""
    rows.open()
    rows.name(1, "sess=s resp=r1")
    rows.after(10)
    rows.command(Feed(1, (7, 8, 9)))
    rows.after(50)
    rows.frames(1)
    rows.command(Sent(1, FRAME, 0))
    rows.after(60)
    rows.frames(1)  # 20 ms were left
    rows.after(150)
    rows.frames(1)  # 50 ms late
    rows.event(Parked(1, "text"))
    rows.after(500)
    rows.event(Resumed(1, "text"))
    rows.command(End(1))
    rows.after(10)
    rows.frames(4)  # 20 ms were left, for the 500 do not count
    rows.event(Segment(1, 0, 7, 3, "eos"))
    rows.command(Sent(1, 7 * FRAME, 0))
    rows.command(Played(1, 7 * FRAME, 0))
    rows.event(Done(1, "completed", "", Counts(queue_ms=5, steps=7, frames=7, text_ids=3)))


def test_lead_is_what_is_left_of_what_came_before() -> None:
    rows = Rows()
    a_reply(rows)
    assert rows.leads_ms == pytest.approx([20, -50, 20])
    assert rows.ended[0].least_lead_s == pytest.approx(-0.05)


def test_only_live_rows_have_a_listener_who_waits() -> None:
    rows = Rows()
    rows.open(lane="throughput")
    rows.frames(1)
    rows.after(200)
    rows.frames(1)
    assert rows.leads_ms == []
    assert rows.running[1].least_lead_s == pytest.approx(-0.12)


def test_one_line_tells_the_timeline(caplog: pytest.LogCaptureFixture) -> None:
    rows = Rows()
    with caplog.at_level(logging.INFO, logger="realtime.server.row_log"):
        a_reply(rows)
    [line] = [record.getMessage() for record in caplog.records]
    assert line.startswith("sess=s resp=r1 row=1 ")
    fields = dict(word.split("=") for word in line.split())
    expected = {
        **{"lane": "live", "model": FAKE_MODEL.name, "reason": "completed", "queue_ms": "5"},
        **{"first_text_ms": "10.0", "first_sound_ms": "60.0", "total_ms": "780.0"},
        **{"audio_ms": "560.0", "sent_ms": "560.0", "least_lead_ms": "-50.0"},
        **{"context_rows": "9", "text_ids": "3", "steps": "7", "frames": "7"},
    }
    assert {name: fields[name] for name in expected} == expected


def test_a_row_that_never_made_sound_has_gaps_in_its_line() -> None:
    rows = Rows()
    rows.open()
    rows.event(Refused(1, "overloaded", "full", 100))
    [record] = rows.ended
    assert record.reason == "refused:overloaded"
    assert "first_sound_ms=- " in record.line()
    assert record.lead_s(0) is None


def test_a_cancelled_row_tells_how_long_its_places_were_held() -> None:
    rows = Rows()
    rows.open()
    rows.command(Cancel(1))
    rows.after(25)
    rows.command(Cancel(1))
    rows.after(5)
    rows.event(Done(1, "cancelled", "", Counts()))
    assert rows.ended[0].cancel_ms == 30.0
    assert " cancel_ms=30.0 " in rows.ended[0].line()


def test_rows_that_are_over_are_kept_for_a_while() -> None:
    rows = Rows()
    for row in range(1, KEPT_RECORDS + 3):
        rows.open(row)
        rows.event(Done(row, "completed", "", Counts()))
        rows.command(Cancel(row))  # too late, and nothing
    assert rows.running == {}
    assert rows.find(2) is None
    assert rows.find(3) is not None
    assert len(rows.over) == KEPT_RECORDS


def test_a_very_long_row_keeps_its_sums_and_its_end() -> None:
    rows = Rows()
    rows.open()
    for _ in range(MOST_NOTES + 10):
        rows.frames(1)
    rows.event(Done(1, "completed", "", Counts()))
    [record] = rows.ended
    assert record.samples == (MOST_NOTES + 10) * FRAME
    assert len(record.notes) == MOST_NOTES + 1
    assert record.notes[-1].kind == "done"


def test_an_engine_that_dies_leaves_nothing_running() -> None:
    rows = Rows()
    rows.open(1)
    rows.open(2)
    rows.engine_died()
    assert rows.running == {}
    assert [record.reason for record in rows.ended] == ["failed", "failed"]


def test_a_trace_has_states_that_follow_each_other_and_everything_that_happened() -> None:
    rows = Rows()
    a_reply(rows)
    traced = trace(rows.ended[0], int(rows.at_ms * 1e6))
    events = traced["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    states = [(event["name"], event["ts"] / 1000, event["dur"] / 1000) for event in slices]
    assert [name for name, *_ in states] == [
        *("queued", "prefill", "speaking", "waiting for text", "speaking")
    ]
    np.testing.assert_allclose([start for _, start, _ in states], [0, 5, 60, 270, 770])
    for (_, start, lasts), (_, follows, _) in itertools.pairwise(states):
        assert start + lasts == pytest.approx(follows)
    instants = [event["name"] for event in events if event["ph"] == "i"]
    assert sorted(instants) == sorted(
        ["text", "end", "segment", "sent", "sent", "played", *(["sound"] * 4)]
    )
    counters = [event["args"]["ms"] for event in events if event["ph"] == "C"]
    np.testing.assert_allclose(counters, [80, 20, 100, -50, 30, 20, 340], atol=1e-6)
    assert {event["name"] for event in events if event["ph"] == "M"} == {
        *("process_name", "thread_name")
    }
    assert traced["otherData"]["reason"] == "completed"


def test_the_trace_of_a_row_that_runs_ends_now() -> None:
    rows = Rows()
    rows.open()
    rows.after(40)
    traced = trace(rows.running[1], int(rows.at_ms * 1e6))
    [only] = [event for event in traced["traceEvents"] if event["ph"] == "X"]
    assert (only["name"], only["dur"]) == ("prefill", 40_000)
