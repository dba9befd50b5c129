"""Each metric on timelines made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from realtime.bench import metrics
from realtime.bench.player import Playback, play
from realtime.bench.trip import Trip
from tests.realtime.bench.timelines import pieces, trip

STEADY = trip((1.0, 0.5), (1.5, 0.5), (1.9, 0.5))
LATE = trip((1.0, 0.5), (1.7, 0.5), (2.0, 0.5), (2.9, 0.5))
ONE = trip((1.0, 0.5))
EMPTY = trip()


def test_latencies() -> None:
    assert metrics.ttfa_s(LATE) == 1.0
    assert metrics.e2el_s(LATE) == 2.9
    assert metrics.rtf(LATE) == pytest.approx(2.9 / 2.0)
    assert metrics.gaps_s(LATE) == pytest.approx([0.7, 0.3, 0.9])
    assert metrics.ttfa_audible_s(trip((1.0, 0.5), sent_s=0.25, audible_s=1.5)) == 1.25
    texts = trip((1.0, 0.5), first_text_s=0.5, speakable_s=0.75)
    assert metrics.ttfa_text_s(texts) == 0.5
    assert metrics.ttfa_speakable_s(texts) == 0.25


@pytest.mark.parametrize("of", [metrics.ttfa_s, metrics.ttfa_audible_s, metrics.ttfa_text_s])
def test_a_response_without_sound_has_no_time_to_it(of: Any) -> None:
    assert of(trip(first_text_s=0.5)) is None


def test_a_cut_response_has_no_end_to_end_latency() -> None:
    assert metrics.e2el_s(trip((1.0, 0.5), ending="cancelled")) is None
    assert metrics.e2el_s(trip((1.0, 0.5), ending="failed")) is None


@pytest.mark.parametrize(
    ("response", "deficits", "worst", "events"),
    [
        (STEADY, [0.0, 0.0], 0.0, 0),
        # The un-paused player is not set back by a stall: 0.2 s, then in time, then 0.4 s.
        (LATE, [0.2, 0.0, 0.4], 0.4, 2),
        (ONE, [], None, 0),
        (EMPTY, [], None, 0),
    ],
)
def test_underrun(response: Trip, deficits: list[float], worst: float | None, events: int) -> None:
    assert metrics.deficits_s(response.pieces) == pytest.approx(deficits)
    assert metrics.underrun_s(response) == (None if worst is None else pytest.approx(worst))
    assert metrics.underrun_events(response) == events


def test_continuity_counts_responses_at_each_threshold_and_none_of_one_piece() -> None:
    underruns = [0.0, 0.05, 0.0501, 0.1, 0.15, 0.2, 0.3, None]
    assert metrics.continuity(underruns) == {
        "c50": round(200 / 7, 2),
        "c100": round(400 / 7, 2),
        "c200": round(600 / 7, 2),
    }
    assert metrics.continuity([None]) == {"c50": None, "c100": None, "c200": None}


def test_time_stands_still_while_the_server_waits_for_text() -> None:
    waited = ((0.2, 0.6), (1.6, 2.3))  # before the first sound it harms nobody
    response = trip((1.0, 0.5), (1.4, 0.5), (2.4, 0.5), (3.2, 0.5), starved=waited)
    shifted = [piece.at_s for piece in metrics.fed_pieces(response)]
    assert shifted == pytest.approx([1.0, 1.4, 1.7, 2.5])
    assert metrics.underrun_s(response) == pytest.approx(0.7)
    assert metrics.fed_underrun_s(response) == pytest.approx(0.0)
    assert metrics.fed_underrun_s(EMPTY) is None


def test_cancels() -> None:
    response = trip(
        *((1.0, 0.5), (1.1, 0.5)),
        **{"ending": "cancelled", "cancel_s": 1.25, "last_sound_s": 1.5, "ended_s": 1.75},
        **{"made_ms": 1200.0, "heard_ms": 400.0},
    )
    assert metrics.cancel_to_last_sound_s(response) == 0.25
    assert metrics.cancel_to_done_s(response) == 0.5
    assert metrics.wasted_ms(response) == 800.0
    quiet = trip((1.0, 0.5), ending="cancelled", cancel_s=1.25, last_sound_s=1.0)
    assert metrics.cancel_to_last_sound_s(quiet) == 0.0
    assert metrics.wasted_ms(quiet) is None
    for of in (metrics.cancel_to_last_sound_s, metrics.cancel_to_done_s, metrics.wasted_ms):
        assert of(STEADY) is None


@pytest.mark.parametrize(
    ("fields", "lost"),
    [
        ({"made_ms": 1500.0}, 0.0),
        ({"made_ms": 1500.5}, 0.0),
        ({"made_ms": 1580.0}, 80.0),
        ({"made_ms": None}, None),
        ({"made_ms": 1580.0, "ending": "cancelled"}, None),
    ],
)
def test_sound_that_was_made_and_did_not_come(fields: dict[str, Any], lost: float | None) -> None:
    response = trip((1.0, 0.5), (1.5, 0.5), (1.9, 0.5), **fields)
    assert metrics.lost_ms(response) == (None if lost is None else pytest.approx(lost))


@pytest.mark.parametrize(
    ("limits", "met"),
    [
        ({}, True),
        ({"ttfa_ms": 1000, "e2el_ms": 2900, "rtf": 1.45, "underrun_ms": 400.1}, True),
        ({"ttfa_ms": 999}, False),
        ({"e2el_ms": 2899}, False),
        ({"rtf": 1.449}, False),
        ({"ttfa_ms": 1000, "underrun_ms": 399}, False),
        ({"ttfa_from_speakable_text_ms": 1e9}, False),  # it has none
    ],
)
def test_service_levels(limits: dict[str, float], met: bool) -> None:
    assert metrics.meets(LATE, limits) == met
    assert not metrics.meets(trip((1.0, 0.5), ending="failed"), limits)


def test_lead_falls_with_time_and_rises_with_sound() -> None:
    points = metrics.lead_s(pieces((1.0, 0.5), (1.7, 0.5)))
    np.testing.assert_allclose(points, [(0, 0), (0, 0.5), (0.7, -0.2), (0.7, 0.3)], atol=1e-12)
    assert metrics.lead_s(()) == []


def test_statistics_are_numpys_and_leave_out_what_is_not() -> None:
    values = [0.001, None, 0.002, 0.004, 0.010]
    figures = metrics.statistics(values, 1000)
    known = [1, 2, 4, 10]
    assert figures == {
        "n": 4,
        "mean": 4.25,
        "median": 3.0,
        "std": round(float(np.std(known)), 3),
        **{f"p{rank}": round(float(np.percentile(known, rank)), 3) for rank in (50, 90, 95, 99)},
        "max": 10.0,
    }
    assert metrics.statistics([None]) == {"n": 0}


@pytest.mark.parametrize(
    ("times", "buffer_ms", "playback"),
    [
        # Without a buffer: dry at 1.5 and, since it went on at 1.7, again at 2.7.
        ([(1.0, 0.5), (1.7, 0.5), (2.0, 0.5), (2.9, 0.5)], 0, (1.0, 0.4, 2)),
        ([(1.0, 0.5), (1.5, 0.5), (1.9, 0.5)], 0, (1.0, 0.0, 0)),
        # It begins with the piece that fills the buffer; what came meanwhile carries it over.
        ([(1.0, 0.08), (1.1, 0.08), (1.2, 0.08)], 0, (1.0, 0.04, 2)),
        ([(1.0, 0.08), (1.1, 0.08), (1.2, 0.08)], 100, (1.1, 0.0, 0)),
        ([(1.0, 0.08), (1.2, 0.08), (1.4, 0.08)], 0, (1.0, 0.24, 2)),
        # Dry at 1.5, it fills the buffer again: with the two pieces that are there at 1.8.
        ([(1.0, 0.1), (1.3, 0.1), (1.6, 0.1), (1.8, 0.1)], 200, (1.3, 0.3, 1)),
        # The end of the sound starts what is held, however little.
        ([(1.0, 0.08)], 200, (1.0, 0.0, 0)),
        ([(1.0, 0.08), (1.05, 0.02)], 200, (1.05, 0.0, 0)),
    ],
)
def test_a_player_with_a_jitter_buffer(
    times: list[tuple[float, float]], buffer_ms: float, playback: tuple[float, float, int]
) -> None:
    start_s, stall_s, stalls = playback
    assert play(pieces(*times), buffer_ms) == Playback(
        pytest.approx(start_s), pytest.approx(stall_s, abs=1e-9), stalls
    )


def test_nobody_plays_nothing() -> None:
    assert play((), 0) is None
