"""Numbers in words or digits, both as digits: `nineteen ten`, `1910` and `19 10` are the same."""

from __future__ import annotations

import re

_ONES = {
    word: value
    for value, word in enumerate(
        (
            *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"),
            *("ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen"),
            *("seventeen", "eighteen", "nineteen"),
        )
    )
}
_TENS = {
    word: 10 * value
    for value, word in enumerate(
        ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"), start=2
    )
}
_SCALES = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9}
_IRREGULAR_ORDINALS = {
    **{"first": "one", "second": "two", "third": "three", "fifth": "five"},
    **{"eighth": "eight", "ninth": "nine", "twelfth": "twelve"},
}


def joined_numbers(words: list[str]) -> list[str]:
    """Return the words with each run of numbers as one word of digits, `1th` for `first`."""
    joined = []
    place = 0
    while place < len(words):
        end = _end_of_number(words, place)
        joined.append(_digits(words[place:end]) if end > place else words[place])
        place = max(end, place + 1)
    return joined


def _end_of_number(words: list[str], start: int) -> int:
    """Return where the number that starts at `start` ends; `start` itself where there is none."""
    end = start
    while end < len(words):
        word = words[end]
        if _ordinal(word) is not None:
            return end + 1
        following = words[end + 1 : end + 2]
        joins = word == "and" and end > start and words[end - 1] in _SCALES
        opens = word == "a" and following and following[0] in _SCALES
        if _value(word) is None and word not in _SCALES and not opens:
            if not (joins and following and _starts_number(following[0])):
                break
        elif word in _SCALES and end == start:
            break
        end += 1
    return end


def _starts_number(word: str) -> bool:
    return _value(word) is not None or _ordinal(word) is not None


def _value(word: str) -> int | None:
    if word.isdigit():
        return int(word)
    return _ONES.get(word, _TENS.get(word))


def _ordinal(word: str) -> int | None:
    """Return the number of an ordinal in words or digits, None for any other word."""
    if numeral := re.fullmatch(r"(\d+)(st|nd|rd|th)", word):
        return int(numeral[1])
    if word in _IRREGULAR_ORDINALS:
        return _ONES[_IRREGULAR_ORDINALS[word]]
    if word.endswith("ieth"):
        return _TENS.get(word.removesuffix("ieth") + "y")
    return _ONES.get(word.removesuffix("th")) if word.endswith("th") else None


def _digits(words: list[str]) -> str:
    """Write a run of number words as digits: `twenty five` 25, `nineteen ten` 1910."""
    numbers: list[list[int]] = []  # each one the sum of its parts: millions, thousands, the rest
    for word in words:
        scale = _SCALES.get(word)
        value = 1 if word == "a" else _ordinal(word) if _value(word) is None else _value(word)
        if scale is not None and numbers:
            numbers[-1][-1] *= scale
        elif value is not None and numbers and _continues(sum(numbers[-1]), value):
            _add(numbers[-1], value)
        elif value is not None:
            numbers.append([value])
    ending = "th" if _ordinal(words[-1]) is not None else ""
    return "".join(str(sum(parts)) for parts in numbers) + ending


def _add(parts: list[int], value: int) -> None:
    # What follows a thousand may get a scale of its own: two thousand three hundred.
    if parts[-1] < 1000:
        parts[-1] += value
    else:
        parts.append(value)


def _continues(number: int, value: int) -> bool:
    """Whether `value` is the next lower part of the same number, as in `forty` `two`."""
    if number == 0 or value == 0 or number % 100 == 10:
        return False
    zeros = len(str(number)) - len(str(number).rstrip("0"))
    return len(str(value)) <= zeros
