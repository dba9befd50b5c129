"""Signs that are said by name, or not at all."""

from __future__ import annotations

import re

from engine.text.normalise.rule import rule

_NAMES = {
    "&": "and", "@": "at", "=": "equals", "+": "plus", "\u00d7": "times", "\u00f7": "divided by",
    "\u00b1": "plus or minus", "\u2248": "about", "\u2264": "at most", "\u2265": "at least",
    "\u2260": "is not", "^": "to the power of", "\u2192": "to", "\u00b0": "degrees",
}  # fmt: skip
_SILENT = "\u00a9\u00ae\u2122\u2020\u2021"
_EMOJI = (
    (0x1F000, 0x1FAFF),  # pictures, skin tones, flags
    (0x2600, 0x27BF),  # weather, dingbats, check marks
    (0x2B05, 0x2B55),  # arrows, squares, stars
    (0xE0020, 0xE007F),  # flag tags
    (0xFE0E, 0xFE0F),  # variation selectors
    (0x20E3, 0x20E3),  # keycap
)
_JOINER = "\u200d"


def is_emoji(char: str, after: str) -> bool:
    """Whether a character is, or helps to make, a picture; `after` is the one before it.

    The joiner is also part of writing systems.
    """
    code = ord(char)
    if char == _JOINER:
        return bool(after) and is_emoji(after, "")
    return code >= 0x20E3 and any(first <= code <= last for first, last in _EMOJI)


@rule(r"~(?=\s?[$\u20ac\u00a3]?\d)|\u2248(?=\s?\d)", whole=False)
def about(match: re.Match[str]) -> str | None:
    """~20"""
    return "about "


@rule(r"[<>](?=\s?[$\u20ac\u00a3]?\d)", whole=False)
def comparison(match: re.Match[str]) -> str | None:
    """< 5"""
    return "less than " if match.group() == "<" else "more than "


@rule(r"#(?=\d)", whole=False)
def number_sign(match: re.Match[str]) -> str | None:
    """#5"""
    return "number "


@rule(rf"[{''.join(map(re.escape, _NAMES))}]", whole=False)
def named_sign(match: re.Match[str]) -> str | None:
    """R&D"""
    following = match.string[match.end() : match.end() + 1]
    return f" {_NAMES[match.group()]}{' ' if following.isalnum() else ''}"


@rule(r"(?<=[^\W_])_+(?=[^\W_])", whole=False)
def underscore(match: re.Match[str]) -> str | None:
    """snake_case"""
    return " "


@rule(rf"[#*_~`<>{{}}|\\{_SILENT}]", whole=False)
def silent_sign(match: re.Match[str]) -> str | None:
    """what is left of markup"""
    return ""


RULES = (about, comparison, number_sign, named_sign, underscore, silent_sign)
