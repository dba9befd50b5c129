"""The pattern that cuts text into pre-tokens, as a state machine over characters."""

from __future__ import annotations

import enum
import functools

from tokenizers import Regex, normalizers

PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# Asks the tokenizer's own pattern engine: its Unicode data may differ from Python's.
_classes = normalizers.Sequence(
    [
        normalizers.Replace(Regex(pattern), letter)
        for pattern, letter in [(r"\p{L}", "L"), (r"\p{N}", "1"), (r"\s", " "), ("[^L1 ]", ".")]
    ]
)


class Kind(enum.IntEnum):
    """What the pattern tells apart in the next character."""

    LETTER = enum.auto()
    NUMBER = enum.auto()
    SPACE = enum.auto()  # U+0020
    BLANK = enum.auto()  # other white space
    NEWLINE = enum.auto()  # CR or LF, which are white space too
    APOSTROPHE = enum.auto()
    OTHER = enum.auto()


class State(enum.IntEnum):
    """What the open piece is so far."""

    EMPTY = enum.auto()
    LETTERS = enum.auto()
    APOSTROPHE = enum.auto()
    APOSTROPHE_R_OR_V = enum.auto()
    APOSTROPHE_L = enum.auto()
    ONE_OTHER = enum.auto()
    OTHERS = enum.auto()
    OTHERS_NEWLINES = enum.auto()
    ONE_SPACE = enum.auto()
    ONE_BLANK = enum.auto()
    BLANKS = enum.auto()  # two or more, no newline
    LINES = enum.auto()  # white space with a newline
    COMPLETE = enum.auto()  # nothing can join it


_BLANKS = {Kind.SPACE: State.BLANKS, Kind.BLANK: State.BLANKS, Kind.NEWLINE: State.LINES}
_OTHERS = {
    Kind.APOSTROPHE: State.OTHERS,
    Kind.OTHER: State.OTHERS,
    Kind.NEWLINE: State.OTHERS_NEWLINES,
}
_LETTERS = {Kind.LETTER: State.LETTERS}
_VISIBLE = (Kind.APOSTROPHE, Kind.OTHER)

# A kind that is missing cannot join the piece: the piece ends before it.
NEXT: dict[State, dict[Kind, State]] = {
    State.EMPTY: {
        Kind.LETTER: State.LETTERS,
        Kind.NUMBER: State.COMPLETE,
        Kind.SPACE: State.ONE_SPACE,
        Kind.BLANK: State.ONE_BLANK,
        Kind.NEWLINE: State.LINES,
        Kind.APOSTROPHE: State.APOSTROPHE,
        Kind.OTHER: State.ONE_OTHER,
    },
    State.LETTERS: _LETTERS,
    State.APOSTROPHE: _LETTERS | _OTHERS,
    State.APOSTROPHE_R_OR_V: _LETTERS,
    State.APOSTROPHE_L: _LETTERS,
    State.ONE_OTHER: _LETTERS | _OTHERS,
    State.OTHERS: _OTHERS,
    State.OTHERS_NEWLINES: {Kind.NEWLINE: State.OTHERS_NEWLINES},
    State.ONE_SPACE: _LETTERS | _BLANKS | dict.fromkeys(_VISIBLE, State.OTHERS),
    State.ONE_BLANK: _LETTERS | _BLANKS,
    State.BLANKS: _BLANKS,
    State.LINES: dict.fromkeys(_BLANKS, State.LINES),
    State.COMPLETE: {},
}

_CONTRACTIONS = {
    State.APOSTROPHE: {
        **dict.fromkeys("stmd\u017f", State.COMPLETE),
        **dict.fromkeys("rv", State.APOSTROPHE_R_OR_V),
        "l": State.APOSTROPHE_L,
    },
    State.APOSTROPHE_R_OR_V: {"e": State.COMPLETE},
    State.APOSTROPHE_L: {"l": State.COMPLETE},
}


def state_after(state: State, kind: Kind, char: str) -> State:
    """Return the state once a character that can join the piece has joined it."""
    if kind is Kind.LETTER and state in _CONTRACTIONS:
        return _CONTRACTIONS[state].get(char.lower(), State.LETTERS)
    return NEXT[state][kind]


@functools.lru_cache(1 << 16)
def kind_of(char: str) -> Kind:
    """Tell what the pattern sees in a character."""
    special = {" ": Kind.SPACE, "\r": Kind.NEWLINE, "\n": Kind.NEWLINE, "'": Kind.APOSTROPHE}
    by_class = {"L": Kind.LETTER, "1": Kind.NUMBER, " ": Kind.BLANK, ".": Kind.OTHER}
    return special.get(char) or by_class[_classes.normalize_str(char)]
