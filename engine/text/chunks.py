"""Cut a long text into chunks that are spoken one after another, each within a budget of tokens.

Rules and marks are those of MOSS-TTS-Nano's released front end; the chunks must be the same ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

Count = Callable[[str], int]
"""How many tokens a text has."""

_ENDS = ".!?。！？；;"  # noqa: RUF001
_CLAUSE_ENDS = ",，、；;：:"  # noqa: RUF001
_CLOSERS = "\"'”’)]}）】》」』"  # noqa: RUF001
_CJK = re.compile("[一-鿿㐀-䶿぀-ヿ가-힯]")
_SHORT_WORDS = 5  # texts of fewer words are padded
_PADDING = " " * 8
_LOOK_BACK = 24  # characters in which a better place to cut is searched
_SHORT_PAUSE_WORDS = 4
_LONG_PAUSE_S, _PAUSE_S = 0.40, 0.24


@dataclass(frozen=True, slots=True)
class Chunk:
    """What is spoken at once, and the silence that follows it (none after the last)."""

    text: str
    pause_s: float


def chunks(text: str, count: Count, budget: int) -> list[Chunk]:
    """Cut `text` so that no chunk has more than `budget` tokens, as far as whole characters allow.

    A text that is one chunk comes back as it was, and so does any with a budget of 0 or less;
    several chunks come prepared (see `prepare`).
    """
    parts = split(text, count, budget) if budget > 0 else [text]
    if len(parts) <= 1:
        return [Chunk(text, 0.0)]
    return [Chunk(part, _pause_s(part)) for part in parts[:-1]] + [Chunk(parts[-1], 0.0)]


def split(text: str, count: Count, budget: int) -> list[str]:
    """Return the prepared text in parts of at most `budget` tokens."""
    pieces = []
    for sentence in _split_after(prepare(text), _ENDS, _CLOSERS):
        if count(sentence) <= budget:
            pieces.append(sentence)
            continue
        for clause in _split_after(sentence, _CLAUSE_ENDS):
            pieces += _cut(clause, count, budget)
    return _merge(pieces, count, budget)


def prepare(text: str) -> str:
    """One line with a full stop at its end; an English one starts with a capital.

    A short English text is padded in front; the tokenizer drops the padding again.
    """
    text = re.sub(" {2,}", " ", re.sub(r"[\r\n]+", " ", text.strip()))
    if not text:
        return text
    if _CJK.search(text):
        return text if text[-1] in _ENDS else text + "。"
    if not text[0].isupper():
        text = text[0].upper() + text[1:]
    if text[-1].isalnum():
        text += "."
    return _PADDING + text if len(text.split()) < _SHORT_WORDS else text


def _split_after(text: str, ends: str, closers: str = "") -> list[str]:
    """Split after each of `ends` and the closing quotes and brackets that follow it directly."""
    pattern = f"[{re.escape(ends)}]" + (f"[{re.escape(closers)}]*" if closers else "")
    parts: list[str] = []
    start = 0
    for match in re.finditer(pattern, text):
        parts.append(text[start : match.end()].strip())
        start = match.end()
    parts.append(text[start:].strip())
    return [part for part in parts if part]


def _cut(text: str, count: Count, budget: int) -> list[str]:
    """Cut where it hurts least, for want of marks to cut at."""
    parts: list[str] = []
    while text:
        if count(text) <= budget:
            return [*parts, text]
        stop = _better_place(text, _longest_prefix(text, count, budget))
        parts.append(text[:stop].strip())
        text = text[stop:].strip()
    return [part for part in parts if part]


def _longest_prefix(text: str, count: Count, budget: int) -> int:
    """How many characters fit into the budget; at least one."""
    low, high = 1, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if count(text[:middle].strip()) <= budget:
            low = middle
        else:
            high = middle - 1
    return low


def _better_place(text: str, stop: int) -> int:
    """Move a cut back to just behind the last mark or space, if one is near."""
    marks = _ENDS + _CLAUSE_ENDS + " "
    for place in range(stop, max(0, stop - _LOOK_BACK - 1), -1):
        if text[place - 1] in marks:
            return place
    return stop


def _merge(pieces: list[str], count: Count, budget: int) -> list[str]:
    """Join neighbours from the left while they fit together."""
    merged: list[str] = []
    size = 0
    for piece in pieces:
        piece_size = count(piece)
        if merged and size + piece_size <= budget:
            merged[-1] = _join(merged[-1], piece)
            size = count(merged[-1])
        else:
            merged.append(piece)
            size = piece_size
    return merged


def _join(left: str, right: str) -> str:
    return left + ("" if _CJK.search(left) or _CJK.search(right) else " ") + right


def _pause_s(text: str) -> float:
    return _LONG_PAUSE_S if len(text.split()) <= _SHORT_PAUSE_WORDS else _PAUSE_S
