"""The figures of a set of spoken lines, as JSON and as a few lines for people."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from engine.train.evaluation.recogniser import Recogniser
from engine.train.evaluation.scoring import Scored, by_voice, score, word_error_rate
from engine.train.evaluation.similarity import VoicePrints, cosines
from engine.train.evaluation.speech import Line, Said

PLAUSIBLE = (0.5, 2.0)
"""A reply is plausible that ends by itself within these shares of the teacher's length."""


class Measures:
    """Measures speech against the lengths of the teacher's, and against voices' references."""

    def __init__(self, teacher: Sequence[Said], references: Sequence[Said], threads: int) -> None:
        self._recogniser = Recogniser(threads)
        self._prints = VoicePrints()
        self._references = self._prints.of(references, shortest_s=0)
        self._lengths_s: dict[Line, float] = {}
        self.expect(teacher)

    def expect(self, teacher: Sequence[Said]) -> None:
        """Take the length of each of these lines as what is to be expected."""
        self._lengths_s |= {one.line: one.length_s for one in teacher}

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
        return figures | {"sentences": self._rows(scored, said)}

    def _scored(self, said: Sequence[Said]) -> list[Scored]:
        heard = (self._recogniser.hear([one.sound], one.rate_hz)[0] for one in said)
        return [
            score(one.line.text, text, one.line.voice)
            for one, text in zip(said, heard, strict=True)
        ]

    def _endings(self, said: Sequence[Said]) -> dict[str, Any]:
        low, high = PLAUSIBLE
        plausible = [
            one.ended and low <= one.length_s / self._lengths_s[one.line] <= high for one in said
        ]
        return {
            "ended_plausibly": statistics.fmean(plausible),
            "ended": statistics.fmean(one.ended for one in said),
            "plausible_share_of_teacher_length": PLAUSIBLE,
        }

    def _rows(self, scored: Sequence[Scored], said: Sequence[Said]) -> list[dict[str, Any]]:
        return [
            dataclasses.asdict(one)
            | {"length_s": sound.length_s, "ended": sound.ended}
            | {"teacher_s": self._lengths_s[sound.line]}
            for one, sound in zip(scored, said, strict=True)
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
