"""Unicode normal form C of a text that arrives in pieces."""

from __future__ import annotations

import enum
import functools
import unicodedata
from typing import NamedTuple

from tokenizers import normalizers

_nfc = normalizers.NFC()  # the tokenizer's own: its Unicode data may differ from Python's


class Arrival(enum.Enum):
    """What a character does to those before it under NFC."""

    STARTS = enum.auto()  # makes them certain
    JOINS = enum.auto()  # may compose with the starter before it, and is one itself
    MARKS = enum.auto()  # may be reordered among them and compose with one


class Joining(NamedTuple):
    """How a character meets its neighbours: `is_open` if what follows may change it."""

    arrival: Arrival
    is_open: bool


class NfcStream:
    """Gives out normalised characters as soon as nothing that follows can change them.

    Work is in proportion to the text, however it is cut.
    """

    def __init__(self) -> None:
        self._pending: list[str] = []

    @property
    def head(self) -> str | None:
        """The first character that is held back; composing does not change its class."""
        return self._pending[0] if self._pending else None

    def feed(self, text: str) -> str:
        """Add text; return the characters that are now certain."""
        released = []
        for char in text:
            arrival, is_open = joining_of(char)
            if arrival is Arrival.STARTS:
                if self._pending:
                    released.append(self.finish())
                if not is_open:
                    released.append(char)
                    continue
            self._pending.append(char)
            if arrival is Arrival.JOINS:
                released.append(self._release_joined())
        return "".join(released)

    def finish(self) -> str:
        """Return all that is held back."""
        pending, self._pending = self._pending, []
        if len(pending) == 1:
            return _normalized_char(pending[0])
        return _nfc.normalize_str("".join(pending)) if pending else ""

    def _release_joined(self) -> str:
        """Release what the last starter makes certain, and it too where nothing can attach to it.

        That starter may be one that joined: U+110B U+1161 is U+C544.
        """
        text = self.finish()
        joinings = [joining_of(char) for char in text]
        last = max(i for i, joining in enumerate(joinings) if joining.arrival is not Arrival.MARKS)
        if last == len(text) - 1 and not joinings[last].is_open:
            return text
        self._pending = list(text[last:])
        return text[:last]


def _composing_pairs() -> tuple[frozenset[str], frozenset[str]]:
    """Return all first and all second characters of compositions, Hangul aside.

    There are none beyond plane 1.
    """
    firsts, seconds = set(), set()
    for char in map(chr, range(0x20000)):
        parts = unicodedata.decomposition(char).split()
        # A tag such as <wide> marks a compatibility decomposition; NFC keeps what may be composed.
        if len(parts) == 2 and parts[0][0] != "<" and unicodedata.normalize("NFC", char) == char:
            firsts.add(chr(int(parts[0], 16)))
            seconds.add(chr(int(parts[1], 16)))
    return frozenset(firsts), frozenset(seconds)


_FIRSTS, _SECONDS = _composing_pairs()


@functools.lru_cache(1 << 16)
def joining_of(char: str) -> Joining:
    """Tell how a character meets its neighbours.

    Characters that a Unicode version has are never changed by a later one, and those it does not
    have count as marks: data older or newer than the tokenizer's only makes the stream wait longer.
    """
    decomposed = unicodedata.normalize("NFD", char)
    if unicodedata.category(char) == "Cn" or unicodedata.combining(decomposed[0]):
        return Joining(Arrival.MARKS, is_open=True)
    joins = decomposed[0] in _SECONDS or _is_jamo_vowel_or_final(decomposed[0])
    arrival = Arrival.JOINS if joins else Arrival.STARTS
    if _is_hangul_syllable(char):
        has_final = (ord(char) - 0xAC00) % 28 != 0
        return Joining(arrival, is_open=not has_final)
    is_jamo_initial = 0x1100 <= ord(char) <= 0x1112
    return Joining(arrival, is_open=char in _FIRSTS or is_jamo_initial or decomposed != char)


def _is_jamo_vowel_or_final(char: str) -> bool:
    return 0x1161 <= ord(char) <= 0x1175 or 0x11A8 <= ord(char) <= 0x11C2


def _is_hangul_syllable(char: str) -> bool:
    return 0xAC00 <= ord(char) <= 0xD7A3


@functools.lru_cache(1 << 16)
def _normalized_char(char: str) -> str:
    normalized: str = _nfc.normalize_str(char)
    return normalized
