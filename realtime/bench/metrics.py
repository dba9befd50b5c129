"""The metrics of one response and of many. Each is defined here once, and nowhere else.

The names are those of serving benchmarks: time to first audio, end-to-end latency, real-time
factor, inter-chunk latency, underrun and continuity. A value that a response cannot have is None
and left out of every statistic.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from realtime.bench.trip import Piece, Trip

CONTINUITY_MS = (50, 100, 200)
PERCENTILES = (50, 90, 95, 99)


def ttfa_s(trip: Trip) -> float | None:
    """Time to first audio: first sound after a header, minus when the request was sent."""
    return trip.pieces[0].at_s - trip.sent_s if trip.pieces else None


def ttfa_audible_s(trip: Trip) -> float | None:
    """The same to the first sample above -50 dBFS."""
    return None if trip.audible_s is None else trip.audible_s - trip.sent_s


def ttfa_text_s(trip: Trip) -> float | None:
    """First sound minus first text delta."""
    return _after(trip, trip.first_text_s)


def ttfa_speakable_s(trip: Trip) -> float | None:
    """First sound minus the delta with which twelve tokens, or all of the text, were sent.

    A word counts as a token; below 0, the server's tokenizer made more of them.
    """
    return _after(trip, trip.speakable_s)


def _after(trip: Trip, start_s: float | None) -> float | None:
    return trip.pieces[0].at_s - start_s if trip.pieces and start_s is not None else None


def e2el_s(trip: Trip) -> float | None:
    """End-to-end latency: end of the answer minus when the request was sent."""
    return trip.ended_s - trip.sent_s if trip.is_whole else None


def rtf(trip: Trip) -> float | None:
    """Real-time factor: end-to-end latency over length of the sound, queueing included."""
    latency_s = e2el_s(trip)
    return latency_s / trip.audio_s if latency_s is not None and trip.audio_s else None


def gaps_s(trip: Trip) -> list[float]:
    """Inter-chunk latencies: the time between one piece and the next."""
    times = [piece.at_s for piece in trip.pieces]
    return [later - earlier for earlier, later in itertools.pairwise(times)]


def deficits_s(pieces: Sequence[Piece]) -> list[float]:
    """How late each piece after the first is for a player that started with it and never paused.

    For piece i > 0 that is `max((t_i - t_0) - sum(duration_j for j < i), 0)`.
    """
    found, sound_s = [], 0.0
    for earlier, piece in itertools.pairwise(pieces):
        sound_s += earlier.duration_s
        found.append(max(piece.at_s - pieces[0].at_s - sound_s, 0.0))
    return found


def underrun_s(trip: Trip) -> float | None:
    """The greatest deficit; None where there is one piece or none, which proves nothing."""
    return max(deficits_s(trip.pieces), default=None)


def underrun_events(trip: Trip) -> int:
    """How many pieces came late, by more than what floats lose."""
    return sum(deficit > 1e-9 for deficit in deficits_s(trip.pieces))


def fed_pieces(trip: Trip) -> tuple[Piece, ...]:
    """The pieces as if time had stood still while the server waited for text.

    What is left of an underrun then is the server's.
    """
    return tuple(
        Piece(piece.at_s - _starved_s(trip, piece.at_s), piece.duration_s) for piece in trip.pieces
    )


def _starved_s(trip: Trip, until_s: float) -> float:
    start_s = trip.pieces[0].at_s
    spans = ((max(start, start_s), min(end, until_s)) for start, end in trip.starved)
    return sum(max(0.0, end - start) for start, end in spans)


def fed_underrun_s(trip: Trip) -> float | None:
    """The greatest deficit with text starvation excluded."""
    return max(deficits_s(fed_pieces(trip)), default=None) if trip.pieces else None


def continuity(underruns_s: Iterable[float | None]) -> dict[str, float | None]:
    """C50, C100, C200: percent of responses whose greatest underrun is at most so many ms."""
    known = [value for value in underruns_s if value is not None]
    return {
        f"c{limit}": _percent(sum(value * 1000 <= limit + 1e-6 for value in known), len(known))
        for limit in CONTINUITY_MS
    }


def cancel_to_last_sound_s(trip: Trip) -> float | None:
    """From the cancellation to the last sound that came for it; 0 when none came any more."""
    if trip.cancel_s is None or trip.ending != "cancelled":
        return None
    last_s = trip.cancel_s if trip.last_sound_s is None else trip.last_sound_s
    return max(0.0, last_s - trip.cancel_s)


def cancel_to_done_s(trip: Trip) -> float | None:
    """From the cancellation to the server's word that it is over."""
    if trip.cancel_s is None or trip.ending != "cancelled":
        return None
    return trip.ended_s - trip.cancel_s


def wasted_ms(trip: Trip) -> float | None:
    """Sound that was made for a response and not heard, as the user barged in."""
    if trip.cancel_s is None or trip.made_ms is None or trip.heard_ms is None:
        return None
    return max(0.0, trip.made_ms - trip.heard_ms)


def lost_ms(trip: Trip) -> float | None:
    """Sound that the server says it made for a whole response and that did not come."""
    if not trip.is_whole or trip.made_ms is None:
        return None
    missing_ms = trip.made_ms - 1000 * trip.audio_s
    return missing_ms if missing_ms >= 1 else 0.0  # the server may tell whole milliseconds


def lead_s(pieces: Sequence[Piece]) -> list[tuple[float, float]]:
    """`(seconds since the first piece, lead)` just before and just after each piece.

    The lead is the sound that came minus the sound that a player has used; negative is late.
    """
    points, sound_s = [], 0.0
    for piece in pieces:
        played_s = piece.at_s - pieces[0].at_s
        points.append((played_s, sound_s - played_s))
        sound_s += piece.duration_s
        points.append((played_s, sound_s - played_s))
    return points


OBJECTIVES: dict[str, Callable[[Trip], float | None]] = {
    "ttfa_ms": lambda trip: _ms(ttfa_s(trip)),
    "ttfa_from_speakable_text_ms": lambda trip: _ms(ttfa_speakable_s(trip)),
    "e2el_ms": lambda trip: _ms(e2el_s(trip)),
    "underrun_ms": lambda trip: _ms(fed_underrun_s(trip)),
    "rtf": rtf,
}
"""What a service level may be asked of; text starvation is no underrun here."""


def meets(trip: Trip, limits: Mapping[str, float]) -> bool:
    """Whether a response succeeds and has every value named, none above its limit."""
    values = ((OBJECTIVES[name](trip), limit) for name, limit in limits.items())
    return trip.is_ok and all(value is not None and value <= limit for value, limit in values)


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else 1000 * seconds


def statistics(values: Iterable[float | None], scale: float = 1.0) -> dict[str, float | int]:
    """n, mean, median, std (of the population) and percentiles, linear between ranks."""
    known = np.array([value for value in values if value is not None], np.float64) * scale
    if not len(known):
        return {"n": 0}
    figures = {"mean": known.mean(), "median": np.median(known), "std": known.std()}
    figures |= {f"p{rank}": np.percentile(known, rank) for rank in PERCENTILES}
    figures["max"] = known.max()
    return {"n": len(known)} | {name: round(float(value), 3) for name, value in figures.items()}


def _percent(part: int, whole: int) -> float | None:
    return round(100 * part / whole, 2) if whole else None
