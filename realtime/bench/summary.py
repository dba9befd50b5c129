"""A run in figures: every metric of its responses, and what of them did not succeed."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from realtime.bench import metrics
from realtime.bench.occupancy import Fill
from realtime.bench.player import BUFFERS_MS, play
from realtime.bench.trip import Trip


@dataclasses.dataclass(frozen=True, slots=True)
class Round:
    """One pass of a load. `wall_s` runs from its first request to its last answer."""

    trips: tuple[Trip, ...]
    wall_s: float
    fills: tuple[Fill, ...] = ()
    registration_ms: tuple[float, ...] = ()
    """Of each voice that was stored before; no part of `wall_s`."""
    slot_free_ms: tuple[float, ...] = ()
    """Of each cancelled row, on the server's clock: until its places in the engine were free."""


def summarise(
    rounds: Sequence[Round], objectives: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """All rounds together; throughput is the sum of sound over the sum of durations.

    `objectives` are limits of `metrics.OBJECTIVES`: goodput counts what meets all of them.
    """
    trips = [trip for part in rounds for trip in part.trips]
    whole = [trip for trip in trips if trip.is_whole and not trip.slow_reader]
    return {
        "rounds": len(rounds),
        "wall_s": round(sum(part.wall_s for part in rounds), 3),
        "responses": _counts(trips),
        "errors": dict(Counter(trip.error for trip in trips if trip.error).most_common(10)),
        "throughput": _throughput(rounds, objectives or {}),
        "client_clock_ms": _client_clock(trips),
        "server_clock_ms": _server_clock(trips),
        "registration_ms": metrics.statistics(
            value for part in rounds for value in part.registration_ms
        ),
        "rtf": metrics.statistics(map(metrics.rtf, whole)),
        "continuity": _continuity(whole),
        "players": {f"buffer_{ms}_ms": _player(whole, ms) for ms in BUFFERS_MS},
        "cancels": _cancels(rounds),
        "occupancy": _occupancy([fill for part in rounds for fill in part.fills]),
    }


def _counts(trips: Sequence[Trip]) -> dict[str, int]:
    endings = Counter(trip.ending for trip in trips)
    counts = {"asked": len(trips), "ok": sum(trip.is_ok for trip in trips)}
    counts["empty"] = sum(trip.error.startswith("empty") for trip in trips)
    counts["sound_lost"] = sum(bool(metrics.lost_ms(trip)) for trip in trips)
    counts["slow_readers"] = sum(trip.slow_reader for trip in trips)
    return counts | dict(sorted(endings.items()))


def _throughput(rounds: Sequence[Round], objectives: Mapping[str, float]) -> dict[str, Any]:
    """Sound a second and answers a second; both are needed, as longer answers raise the first."""
    sound_s = [sum(trip.audio_s for trip in part.trips if trip.is_ok) for part in rounds]
    good = sum(metrics.meets(trip, objectives) for part in rounds for trip in part.trips)
    answers = [sum(trip.is_ok for trip in part.trips) for part in rounds]
    wall_s = sum(part.wall_s for part in rounds)
    each = [sound / part.wall_s for sound, part in zip(sound_s, rounds, strict=True) if part.wall_s]
    return {
        "audio_s": round(sum(sound_s), 3),
        "audio_s_per_s": round(sum(sound_s) / wall_s, 3) if wall_s else None,
        "audio_s_per_s_of_rounds": [round(value, 3) for value in each],
        "responses_per_s": round(sum(answers) / wall_s, 3) if wall_s else None,
        "objectives": dict(objectives),
        "goodput_per_s": round(good / wall_s, 3) if wall_s else None,
    }


def _client_clock(trips: Sequence[Trip]) -> dict[str, Any]:
    ok = [trip for trip in trips if trip.is_ok]
    definitions = {
        "ttfa": metrics.ttfa_s,
        "ttfa_audible": metrics.ttfa_audible_s,
        "ttfa_from_first_text": metrics.ttfa_text_s,
        "ttfa_from_speakable_text": metrics.ttfa_speakable_s,
        "e2el": metrics.e2el_s,
    }
    figures = {name: metrics.statistics(map(of, ok), 1000) for name, of in definitions.items()}
    gaps_s = [gap for trip in ok if not trip.slow_reader for gap in metrics.gaps_s(trip)]
    return figures | {"icl": metrics.statistics(gaps_s, 1000)}


def _server_clock(trips: Sequence[Trip]) -> dict[str, Any]:
    told = [trip.server for trip in trips if trip.is_ok and trip.server]
    names = ("queue_ms", "ttfa_ms", "text_to_audio_ms", "starved_ms")
    return {
        name.removesuffix("_ms"): metrics.statistics(getattr(clock, name) for clock in told)
        for name in names
    }


def _continuity(whole: Sequence[Trip]) -> dict[str, Any]:
    """Of responses that were neither cut nor read slowly; one piece proves nothing."""
    underruns = [metrics.underrun_s(trip) for trip in whole]
    fed = [metrics.fed_underrun_s(trip) for trip in whole]
    return {
        "n": sum(value is not None for value in underruns),
        "of_one_piece": sum(value is None for value in underruns),
        "all": metrics.continuity(underruns),
        "text_starvation_excluded": metrics.continuity(fed),
        "underrun_ms": metrics.statistics(underruns, 1000),
        "underrun_events": sum(map(metrics.underrun_events, whole)),
    }


def _player(whole: Sequence[Trip], buffer_ms: float) -> dict[str, Any]:
    """What listeners with such a jitter buffer got, were the text never late."""
    played = [(trip, play(metrics.fed_pieces(trip), buffer_ms)) for trip in whole]
    stall_s = sum(playback.stall_s for _, playback in played if playback)
    sound_s = sum(trip.audio_s for trip, _ in played)
    return {
        "start_ms": metrics.statistics(
            (playback.start_s - trip.sent_s for trip, playback in played if playback), 1000
        ),
        "stall_total_s": round(stall_s, 3),
        "stall_ms_per_minute": round(60_000 * stall_s / sound_s, 2) if sound_s else None,
        "stalls": sum(playback.stalls for _, playback in played if playback),
    }


def _cancels(rounds: Sequence[Round]) -> dict[str, Any]:
    trips = [trip for part in rounds for trip in part.trips]
    slot_free_ms = [value for part in rounds for value in part.slot_free_ms]
    return {
        "n": sum(trip.ending == "cancelled" for trip in trips),
        "to_last_sound_ms": metrics.statistics(map(metrics.cancel_to_last_sound_s, trips), 1000),
        "to_done_ms": metrics.statistics(map(metrics.cancel_to_done_s, trips), 1000),
        "to_slot_free_ms": metrics.statistics(slot_free_ms),
        "wasted_ms": metrics.statistics(map(metrics.wasted_ms, trips)),
    }


def _occupancy(fills: Sequence[Fill]) -> dict[str, Any]:
    return {
        name: metrics.statistics(getattr(fill, name) for fill in fills)
        for name in ("running", "queued", "parked", "step_ms")
    }
