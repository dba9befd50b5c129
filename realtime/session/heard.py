"""Which words were heard by a given time: an estimate from syllables and pauses.

The model gives no word times. A word takes its syllables (a CJK character is a word of one), and
punctuation after it adds a pause, all in one unit of time: the length of a syllable. That length is
the segment's own where the segment was spoken to its end, else what earlier segments showed.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import NamedTuple

DEFAULT_SYLLABLE_MS = 200.0
_LEARNING_RATE = 0.3
_SHORT_PAUSE = 1.0  # in syllables
_LONG_PAUSE = 2.0

_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_WORD = re.compile(rf"\s*(?:[{_CJK}][^\w\s]*|[^\s{_CJK}]+)")
_VOWELS = re.compile(
    "[aeiouy\u0430\u0435\u0438\u043e\u0443\u044b\u044d\u044e\u044f\u03b1\u03b5\u03b7\u03b9\u03bf\u03c5\u03c9]+"
)
_LONG_MARKS = frozenset(".!?\u2026\u3002\uff01\uff1f")
_SHORT_MARKS = frozenset(",;:\u2014\u2013\uff0c\u3001\uff1b\uff1a")


class SpeechRate:
    """How long a syllable of this voice takes, learned from segments spoken to their end."""

    def __init__(self) -> None:
        self.syllable_ms = DEFAULT_SYLLABLE_MS

    def learn(self, text: str, length_ms: float) -> None:
        """Take a segment's text and length into account."""
        units = total_units(text)
        if units and length_ms:
            self.syllable_ms += _LEARNING_RATE * (length_ms / units - self.syllable_ms)


def heard_text(text: str, heard_ms: float, syllable_ms: float) -> str:
    """Return the words of `text` that end by `heard_ms`: a prefix that grows with it."""
    at_ms = 0.0
    end = 0
    for word in words_from(text):
        at_ms += word.syllables * syllable_ms
        if at_ms > heard_ms:
            break
        end = word.end
        at_ms += word.pause * syllable_ms
    return text[:end]


def total_units(text: str) -> float:
    """Return the length of a text in syllables, without the pause after its last word."""
    words = list(words_from(text))
    units = sum(word.syllables + word.pause for word in words)
    return units - (words[-1].pause if words else 0.0)


class Word(NamedTuple):
    """A word up to character `end` of its text; its length and the pause after it in syllables."""

    end: int
    syllables: float
    pause: float


def words_from(text: str, start: int = 0) -> Iterator[Word]:
    """Yield the words of `text` from character `start` on."""
    for found in _WORD.finditer(text, start):
        word = found.group()
        marks = _LONG_MARKS.intersection(word), _SHORT_MARKS.intersection(word)
        pause = _LONG_PAUSE if marks[0] else _SHORT_PAUSE if marks[1] else 0.0
        yield Word(found.end(), _syllables(word), pause)


def _syllables(word: str) -> float:
    plain = "".join(
        char
        for char in unicodedata.normalize("NFD", word.lower())
        if not unicodedata.combining(char)
    )
    alphabetic = len(_VOWELS.findall(plain))
    digits = sum(char.isdigit() for char in word)
    # Hangul syllables, kana and ideographs sound one each; other scripts about one per two letters.
    others = sum(
        1.0 if "\u3040" <= char <= "\ud7a3" or char > "\uf900" else 0.5
        for char in word
        if char.isalpha() and ord(char) >= 0x0530
    )
    return max(1.0, alphabetic + digits + others)
