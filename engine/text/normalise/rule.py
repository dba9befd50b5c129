"""A rule: what it looks for, and how that is said."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

Say = Callable[[re.Match[str]], str | None]

NUMBER = r"(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?)"
TO = r"\s?[-\u2013\u2014]\s?"  # between the ends of a range
MINUS = r"(?<![\w)])[-\u2212]"
_STARTS = r"(?:(?<![^\W_])|(?=\W))(?<!\d[.,:/])"
_ENDS = r"(?![^\W_]|[.,:/]\d)"


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """`say` returns the words for a match of `pattern`, or None to leave it to a later rule."""

    name: str
    pattern: re.Pattern[str]
    say: Say


def rule(pattern: str, *, whole: bool = True) -> Callable[[Say], Rule]:
    """Make a rule of the function below it, under its name.

    `whole`: a match begins and ends where letters and digits do.
    """
    compiled = re.compile(f"{_STARTS}(?:{pattern}){_ENDS}" if whole else pattern)
    return lambda say: Rule(say.__name__, compiled, say)
