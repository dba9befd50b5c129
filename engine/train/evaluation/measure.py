"""The figures of a set of spoken lines, as JSON and as a few lines for people."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from engine.train.evaluation.recogniser import Recogniser
from engine.train.evaluation.scoring import Scored, by_voice, score, word_error_rate
from engine.train.evaluation.similarity import VoicePrints, cosines
from engine.train.evaluation.speech import Said

PLAUSIBLE = (0.5, 2.0)
"""A reply is plausible that ends by itself within these shares of the teacher's length."""


class Measures:
    """Measures speech against the teacher's speech of the same lines, in the same order."""

    def __init__(self, teacher: Sequence[Said], threads: int) -> None:
        self._recogniser = Recogniser(threads)
        self._prints = VoicePrints()
        self._references = self._prints.of(teacher)
        self._lengths_s = [one.length_s for one in teacher]

    def of(self, said: Sequence[Said], *, ends: bool = False) -> dict[str, Any]:
        """Return word error rate, likeness and, with `ends`, how the replies ended."""
        scored = self._scored(said)
        similarity = cosines(self._prints.of(said), self._references)
        own = [row[voice] for voice, row in similarity.items() if voice in row]
        figures: dict[str, Any] = {
            "word_error_rate": dataclasses.asdict(word_error_rate(scored)),
            "by_voice": {name: rate.percent for name, rate in by_voice(scored).items()},
            "similarity": statistics.fmean(own) if own else None,
            "similarity_table": similarity,
        }
        if ends:
            figures |= self._endings(said)
        return figures | {"sentences": _rows(scored, said, self._lengths_s)}

    def _scored(self, said: Sequence[Said]) -> list[Scored]:
        heard = (self._recogniser.hear([one.sound], one.rate_hz)[0] for one in said)
        return [
            score(one.line.text, text, one.line.voice)
            for one, text in zip(said, heard, strict=True)
        ]

    def _endings(self, said: Sequence[Said]) -> dict[str, Any]:
        low, high = PLAUSIBLE
        plausible = [
            one.ended and low * length_s <= one.length_s <= high * length_s
            for one, length_s in zip(said, self._lengths_s, strict=True)
        ]
        return {
            "ended_plausibly": statistics.fmean(plausible),
            "ended": statistics.fmean(one.ended for one in said),
            "plausible_share_of_teacher_length": PLAUSIBLE,
        }


def _rows(
    scored: Sequence[Scored], said: Sequence[Said], lengths_s: Sequence[float]
) -> list[dict[str, Any]]:
    return [
        dataclasses.asdict(one)
        | {"length_s": sound.length_s, "teacher_s": length_s, "ended": sound.ended}
        for one, sound, length_s in zip(scored, said, lengths_s, strict=True)
    ]


def summary(name: str, figures: Mapping[str, Any]) -> str:
    """Return one line for people about the figures of one speaker of the texts."""
    rate = figures["word_error_rate"]
    voices = ", ".join(f"{voice} {rate_:.1f}" for voice, rate_ in figures["by_voice"].items())
    parts = [
        f"{name:<22} word errors {rate['percent']:5.1f} %",
        f"95 %: {rate['low']:.1f} to {rate['high']:.1f}  ({voices})",
    ]
    if figures["similarity"] is not None:
        parts.append(f"likeness {figures['similarity']:.3f}")
    if "ended_plausibly" in figures:
        parts.append(f"ended plausibly {100 * figures['ended_plausibly']:.0f} %")
    if "real_time_factor" in figures:
        parts.append(f"real-time factor {figures['real_time_factor']:.2f}")
    return "  ".join(parts)
