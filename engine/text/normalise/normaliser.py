"""Text as language models write it, to text as it is spoken, while it arrives.

Two stages, each of which reads character by character, so that it makes no difference how a text
is cut into deltas: `markdown` takes the markup out, then the rules read numbers, addresses and
signs. The rules are English; where another script is written, text passes unchanged.

A word waits until it is over, and a number, a month or a currency until the word after it is: it
may be "5 km", "March 5" or "$2 million".
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from typing import Final, Literal, NamedTuple

from engine.text.normalise import addresses, amounts, calendar, signs
from engine.text.normalise.calendar import MONTH
from engine.text.normalise.markdown import MAX_RULE_CHARS, Markdown
from engine.text.normalise.rule import NUMBER, TO, Rule
from engine.text.wording import Piece

MAX_WAITING_CHARS: Final = 256
MAX_HELD_CHARS: Final = MAX_WAITING_CHARS + MAX_RULE_CHARS + 32
RULES: Final[tuple[Rule, ...]] = (
    *addresses.RULES,
    *calendar.RULES,
    *amounts.RULES,
    *signs.RULES,
)

_WORD = re.compile(r"\s*\S+(?=\s)")
_ENGLISH_WORD = re.compile(r"\W*[A-Za-z]{2}")
_ADDRESS = re.compile(r"(?:://|www\.)\S*$")
_MONTH = re.compile(rf"\W*{MONTH}")
_HOUR = r"\d{1,2}(?::\d{2}){0,2}"
_BEGINNINGS = {
    "amount": rf"[$\u20ac\u00a3\u20b9\u00a5]?\s?{NUMBER}(?:{TO}{NUMBER})?(?:\s?[-\u2013]|\ssq)?",
    "day": r"\d{1,2}(?:st|nd|rd|th)",
    "time": rf"{_HOUR}(?:(?:\s?[aApP]\.?[mM]\.?)?{TO}{_HOUR})?",
    "month": MONTH,
    "area code": r"\+\d{1,3}|\(\d{3}\)",
    "phone": r"\+?\(?\d{1,4}\)?(?:[ .-]\(?\d{2,4}\)?){1,5}",
    "sign": r"[$\u20ac\u00a3~#<>\u2212-]",
}
# What may take in the word that follows.
_GOES_ON = re.compile(rf"\W*(?:{'|'.join(_BEGINNINGS.values())})")
_LATIN = (("\u00a0", "\u024f"), ("\u0300", "\u036f"), ("\u1e00", "\u1eff"))
_JOINS = frozenset(
    "\u2212\u2013\u2014\u2018\u2019\u201c\u201d\u2026\u20ac\u20b9\u2122\u2020\u2021\u2022\u2248"
    "\u2260\u2264\u2265\u2192\u2153\u2154"
)


class AsWritten:
    """Normalises nothing: the interface of `Normaliser` for text that is spoken as it is."""

    held = ""

    def feed(self, delta: str) -> list[Piece]:
        """Return the text."""
        return [Piece(delta, delta)]

    def flush(self) -> list[Piece]:
        """Return nothing, as nothing is held."""
        return []


class Spoken(NamedTuple):
    """The words of a match, and where in the text it ends."""

    words: str
    end: int


class Normaliser:
    """Normalises one text. `feed` and `flush` return pieces; their written forms are the text.

    At most `MAX_HELD_CHARS` are held back. After `flush` Markdown goes on where it was.
    """

    def __init__(self) -> None:
        self._markdown = Markdown()
        self._text = ""  # waits for the rules, beside what of the written text each char stands for
        self._written: list[str] = []
        self._waiting_chars = 0  # of the written text
        self._english = True
        self._long_word: Literal["word", "address"] | None = None  # whose beginning was read
        self._last = "\n"  # spoken
        self._last_read = ""

    @property
    def held(self) -> str:
        """The text that was fed and not returned."""
        return "".join(self._written) + self._markdown.held

    def feed(self, delta: str) -> list[Piece]:
        """Add text without lone halves of surrogate pairs; return what is certain."""
        return [
            piece
            for char in delta
            for plain in self._markdown.feed(char)
            for piece in self._read(plain)
        ]

    def flush(self) -> list[Piece]:
        """Return everything that is held; what follows is spoken apart from it."""
        pieces = [p for plain in self._markdown.flush() for p in self._read(plain)]
        pieces += self._settle(final=True)
        self._last, self._long_word = "\n", None
        return pieces

    def _read(self, plain: Piece) -> Iterator[Piece]:
        char = plain.spoken
        if not char:
            if self._written:
                self._written[-1] += plain.written
                yield from self._limit(plain.written)
            else:
                yield plain
            return
        if signs.is_emoji(char, self._last_read):
            yield from self._settle(final=True)
            yield Piece("", plain.written)
        elif _is_foreign(char):
            self._english = self._english and not char.isalpha()
            yield from self._settle(final=True)
            yield self._say(char, plain.written)
        else:
            yield from self._read_english(char, plain.written)
        self._last_read = char

    def _read_english(self, char: str, written: str) -> Iterator[Piece]:
        if self._long_word is not None and not char.isspace():
            silent = self._long_word == "address"
            yield Piece("", written) if silent else self._say(char, written)
            return
        self._long_word = None
        self._text += char
        self._written.append(written)
        yield from self._limit(written)
        if char.isspace():
            yield from self._settle(final=char == "\n")

    def _limit(self, written: str) -> Iterator[Piece]:
        """Read everything if too much is waiting; the rest of the last word passes as it is."""
        self._waiting_chars += len(written)
        if self._waiting_chars >= MAX_WAITING_CHARS:
            if not self._text[-1].isspace():
                self._long_word = "address" if _ADDRESS.search(self._text) else "word"
            yield from self._settle(final=True)

    def _settle(self, *, final: bool) -> Iterator[Piece]:
        """Read the words that are certain; if `final`, all of them."""
        at = 0
        while at < len(self._text) and (final or self._is_certain(at)):
            word = _WORD.match(self._text, at)
            end = word.end() if word else len(self._text)
            if _ENGLISH_WORD.match(self._text, at):
                self._english = True
            at = yield from self._read_word(at, end)
        self._text, self._written = self._text[at:], self._written[at:]
        self._waiting_chars = sum(map(len, self._written))

    def _is_certain(self, at: int) -> bool:
        """Whether the word at `at` is over, and what may follow cannot change how it is read."""
        words = self._text[at:]
        while words and not words[-1].isspace():
            words = words[:-1]
        words = words.strip()
        return bool(words) and not (self._english and _GOES_ON.fullmatch(words))

    def _read_word(self, at: int, end: int) -> Generator[Piece, None, int]:
        """Say the text from `at` to `end`, and more where a rule takes more; return where."""
        is_plain = self._text[at:end].strip().isalpha() and not _MONTH.match(self._text, at)
        while at < end:
            said = None if is_plain else self._apply_rules(at)
            spoken = said or Spoken(self._text[at], at + 1)
            yield self._say(spoken.words, "".join(self._written[at : spoken.end]))
            at = spoken.end
        return at

    def _apply_rules(self, at: int) -> Spoken | None:
        """Return what the first rule that fits at `at` says, and where it ends."""
        if not self._english or self._text[at].isspace():
            return None
        for rule in RULES:
            match = rule.pattern.match(self._text, at)
            words = rule.say(match) if match else None
            if match and words is not None:
                return Spoken(words, match.end())
        return None

    def _say(self, spoken: str, written: str) -> Piece:
        if self._last.isspace():
            spoken = spoken.lstrip(" ")
        self._last = spoken[-1:] or self._last
        return Piece(spoken, written)


def normalised(text: str) -> str:
    """Return a whole text as it is spoken."""
    form = Normaliser()
    return "".join(piece.spoken for piece in form.feed(text) + form.flush())


def _is_foreign(char: str) -> bool:
    """Whether a character is neither of Latin script nor of English typography."""
    if char.isascii() or char in _JOINS:
        return False
    return not any(first <= char <= last for first, last in _LATIN)
