"""Word errors of what was heard against what was to be said."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import jiwer
import numpy as np

from engine.train.evaluation.spoken import spoken_words

_RESAMPLES = 2000


@dataclasses.dataclass(frozen=True, slots=True)
class Scored:
    """One text: what was heard, and how many of its words were wrong, lost or added."""

    text: str
    voice: str
    heard: str
    words: int
    errors: int


@dataclasses.dataclass(frozen=True, slots=True)
class WordErrorRate:
    """Errors in percent of the words, and the range that 95 % of resampled text sets give."""

    percent: float
    low: float
    high: float
    words: int

    def __str__(self) -> str:
        return f"{self.percent:5.1f} %  ({self.low:.1f} to {self.high:.1f})"


def score(text: str, heard: str, voice: str = "") -> Scored:
    """Compare words as they sound: numbers and contractions may be written either way."""
    wanted = spoken_words(text)
    got = _spaced_like(wanted, spoken_words(heard))
    result = jiwer.process_words(" ".join(wanted), " ".join(got))
    errors = result.substitutions + result.deletions + result.insertions
    return Scored(text, voice, heard, len(wanted), errors)


def word_error_rate(scored: Sequence[Scored]) -> WordErrorRate:
    """All errors over all words, with a bootstrap over the texts."""
    errors = np.array([one.errors for one in scored])
    words = np.array([one.words for one in scored])
    draws = np.random.default_rng(0).integers(len(scored), size=(_RESAMPLES, len(scored)))
    low, high = np.percentile(100 * errors[draws].sum(1) / words[draws].sum(1), (2.5, 97.5))
    total = int(words.sum())
    return WordErrorRate(100 * int(errors.sum()) / total, float(low), float(high), total)


def by_voice(scored: Sequence[Scored]) -> dict[str, WordErrorRate]:
    """The rate of each voice by itself."""
    voices = sorted({one.voice for one in scored})
    return {
        voice: word_error_rate([one for one in scored if one.voice == voice]) for voice in voices
    }


def _spaced_like(wanted: list[str], got: list[str]) -> list[str]:
    """Join or split what was heard where only the space differs: `river bank`, `riverbank`."""
    compounds = set(wanted)
    pairs = {a + b: (a, b) for a, b in itertools.pairwise(wanted)}
    spaced: list[str] = []
    for word in got:
        if spaced and spaced[-1] + word in compounds and not {spaced[-1], word} <= compounds:
            spaced[-1] += word
        elif word in pairs and word not in compounds:
            spaced += pairs[word]
        else:
            spaced.append(word)
    return spaced
