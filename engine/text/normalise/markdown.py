"""Markdown taken out of a text that arrives character by character.

Markup becomes silent, table cells are set apart by commas, and a heading, a list item or a table
row that has no full stop gets one. The content of a code block is silent: it is not for the ear.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal

from engine.text.wording import Piece

Line = Literal["start", "text", "block", "row"]  # block: a heading or a list item

MAX_RULE_CHARS: Final = 200  # of a line of dashes, also under a table's head
MAX_TARGET_CHARS: Final = 2048  # of a link
_BLANK = r"[ \t]{0,16}"
_DASHES = rf"[-|: \t]{{0,{MAX_RULE_CHARS}}}"
_BULLET = r"[-*+\u2022]"

# What may still become the beginning of a line.
_LINE_OPEN = re.compile(
    rf"{_BLANK}(?:#{{1,6}}|>|{_BULLET}(?:[ \t]{{1,16}}(?:\[(?:[ xX]\]?)?)?)?|\d{{1,3}}[.)]?"
    rf"|[*_]{{2,16}}|[-|]{_DASHES})?"
)
_RULE_LINE = re.compile(
    rf"{_BLANK}(?:[-*_]{{3,{MAX_RULE_CHARS}}}[ \t]*|(?=[^\n]*-)\|?[ \t]*[-:]{_DASHES})(?=\n|$)"
)
_QUOTE = re.compile(rf"{_BLANK}>[ \t]?")
_ITEM = re.compile(rf"{_BLANK}(?:#{{1,6}}[ \t]+|{_BULLET}[ \t]+(?:\[[ xX]\][ \t]*)?)")
_ROW = re.compile(rf"{_BLANK}\|[ \t]*")
_NUMBERED = re.compile(rf"{_BLANK}(?P<number>\d{{1,3}})(?P<mark>[.)])[ \t]")
# What within a line is read only when the next character is known.
_INLINE_OPEN = re.compile(r"\*{1,8}|_{1,8}|~{1,8}|`{1,2}|!|\[\^?\d{0,3}\]?|\]|\\")
_ROW_OPEN = re.compile(rf"{_BLANK}\|?{_BLANK}|{_INLINE_OPEN.pattern}")
_CELL_END = re.compile(r"[ \t]*\|[ \t]*")
_CITATION = re.compile(r"\[\^?\d{1,3}\]")


class Markdown:
    """Takes characters and gives back pieces of at most one spoken character.

    A character that has to wait for the next one is in `held`.
    """

    def __init__(self) -> None:
        self.held = ""
        self._line: Line = "start"
        self._last = "\n"  # the last character passed on
        self._in_code = False
        self._ticks = 0  # in a row, at the end of what was read
        self._target_depth = 0  # of parentheses around a link's target
        self._target_chars = 0

    def feed(self, char: str) -> Iterator[Piece]:
        """Read one character."""
        if self._in_code:
            yield self._read_code(char)
        elif self._target_depth:
            yield self._read_target(char)
        else:
            self.held += char
            yield from self._decide(None)

    def flush(self) -> Iterator[Piece]:
        """Read what is held as if nothing followed."""
        if self.held:
            yield from self._decide("")

    def _decide(self, end: str | None) -> Iterator[Piece]:
        """Read all that is certain; with an `end`, all of it."""
        while self.held:
            if self._line == "start":
                if end is None and _LINE_OPEN.fullmatch(self.held):
                    return
                yield from self._read_line_start()
            else:
                waits = _ROW_OPEN if self._line == "row" else _INLINE_OPEN
                if end is None and waits.fullmatch(self.held):
                    return
                yield from self._read_inline()
            if self._in_code or self._target_depth:
                rest, self.held = self.held, ""
                for char in rest:
                    yield from self.feed(char)
                return

    def _read_line_start(self) -> Iterator[Piece]:
        if match := _RULE_LINE.match(self.held):
            yield self._silence(match.end())
            self._line = "text"
        elif match := _QUOTE.match(self.held):
            yield self._silence(match.end())
        elif match := _ITEM.match(self.held):
            yield self._silence(match.end())
            self._line = "block"
        elif match := _ROW.match(self.held):
            yield self._silence(match.end())
            self._line = "row"
        elif match := _NUMBERED.match(self.held):
            yield from map(self._pass, match["number"])
            yield Piece(".", match["mark"])
            self.held = self.held[match.end("mark") :]
            self._line = "block"
        else:
            self._line = "text"

    def _read_inline(self) -> Iterator[Piece]:
        cell = _CELL_END.match(self.held) if self._line == "row" else None
        run = cell or _INLINE_OPEN.match(self.held)
        mark = run.group() if run else ""
        following = self.held[len(mark) : len(mark) + 1]
        if not mark:
            yield from self._read_plain()
        elif cell:
            yield from self._read_cell_end(mark, following)
        elif mark[0] == "[":
            cited = following != "(" and _CITATION.fullmatch(mark)
            yield self._silence(len(mark) if cited else 1)
        elif mark == "]" and following == "(":
            self._target_depth, self._target_chars = 1, 0
            yield self._silence(2)
        elif mark == "\\":
            yield self._silence(1)
            if following:
                yield self._pass(self._take())
        elif mark[0] == "`":
            yield self._read_ticks(mark, following)
        else:
            yield self._read_mark(mark, following)

    def _read_plain(self) -> Iterator[Piece]:
        char = self._take()
        if char != "\n":
            yield self._pass(char)
            return
        if self._line in ("block", "row") and (self._last.isalnum() or self._last in ")\"'%\u201d"):
            yield Piece(".", "")
        self._line = "start"
        yield self._pass(char)

    def _read_cell_end(self, mark: str, following: str) -> Iterator[Piece]:
        if following in ("", "\n"):
            yield self._silence(len(mark))
        else:
            self.held = self.held[len(mark) :]
            bar = mark.index("|") + 1
            yield Piece(",", mark[:bar])
            yield Piece(" ", mark[bar:])

    def _read_ticks(self, mark: str, following: str) -> Piece:
        if len(mark) == 2 and following == "`":
            self._in_code = True
        return self._silence(3 if self._in_code else len(mark))

    def _read_mark(self, mark: str, following: str) -> Piece:
        """Read a run of one of `* _ ~ !` or a lone `]`."""
        within = self._last.isalnum() and following.isalnum()
        product = (self._last.isdigit() and following.isdigit()) or self._last == following == " "
        if mark == "*" and product:
            self._last = "\u00d7"
            return Piece(self._last, self._take())
        if mark == "~" or (mark == "_" and within) or (mark == "!" and following != "["):
            return self._pass(self._take())
        return self._silence(len(mark))

    def _read_code(self, char: str) -> Piece:
        self._ticks = self._ticks + 1 if char == "`" else 0
        if self._ticks == 3:
            self._in_code, self._ticks, self._line = False, 0, "text"
        return Piece("", char)

    def _read_target(self, char: str) -> Piece:
        self._target_chars += 1
        self._target_depth += (char == "(") - (char == ")")
        if char == "\n":
            self._line = "start"
        if char == "\n" or self._target_chars >= MAX_TARGET_CHARS:
            self._target_depth = 0
        return Piece("", char)

    def _take(self) -> str:
        char, self.held = self.held[0], self.held[1:]
        return char

    def _silence(self, chars: int) -> Piece:
        silent, self.held = self.held[:chars], self.held[chars:]
        return Piece("", silent)

    def _pass(self, char: str) -> Piece:
        self._last = char
        return Piece(char, char)
