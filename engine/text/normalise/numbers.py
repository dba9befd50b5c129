"""Numbers in English words."""

from __future__ import annotations

_SMALL = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine",
    "ten", "eleven", "twelve", "thirteen", "fourteen",
    "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_SCALES = ("", "thousand", "million", "billion", "trillion")
_ORDINALS = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}
MAX_DIGITS = 3 * len(_SCALES)
_SERIAL_DIGITS = 7  # so long a number without commas is an order or account number


def cardinal(number: int) -> str:
    """Say a number from 0 to 10**15 - 1: 1234 is "one thousand two hundred thirty-four"."""
    if number == 0:
        return _SMALL[0]
    words: list[str] = []
    for power in reversed(range(len(_SCALES))):
        group = number // 1000**power % 1000
        if group:
            words += [_below_1000(group), _SCALES[power]]
    return " ".join(word for word in words if word)


def _below_1000(number: int) -> str:
    hundreds, rest = divmod(number, 100)
    words = [f"{_SMALL[hundreds]} hundred"] if hundreds else []
    if rest >= 20:
        tens, ones = divmod(rest, 10)
        words.append(_TENS[tens] + (f"-{_SMALL[ones]}" if ones else ""))
    elif rest:
        words.append(_SMALL[rest])
    return " ".join(words)


def ordinal(number: int) -> str:
    """Say the place: 21 is "twenty-first"."""
    words = cardinal(number)
    cut = max(words.rfind(" "), words.rfind("-")) + 1
    head, last = words[:cut], words[cut:]
    if last.endswith("y"):
        return f"{head}{last[:-1]}ieth"
    return head + _ORDINALS.get(last, f"{last}th")


def year(number: int) -> str:
    """Say a year of four digits: 1905 is "nineteen oh five", 2024 "twenty twenty-four"."""
    century, rest = divmod(number, 100)
    if century % 10 == 0 and rest < 10:
        return cardinal(number)
    if rest == 0:
        return f"{cardinal(century)} hundred"
    return f"{cardinal(century)} {'oh ' if rest < 10 else ''}{cardinal(rest)}"


def spell(text: str) -> str:
    """Say digits one by one; everything else is skipped."""
    return " ".join(_SMALL[int(char)] for char in text if char in "0123456789")


def quantity(text: str) -> str:
    """Say an amount written with digits, perhaps commas and a decimal point."""
    whole, point, decimals = text.replace(",", "").partition(".")
    is_code = len(whole) > MAX_DIGITS or (len(whole) > 1 and whole[0] == "0")
    words = spell(whole) if is_code else cardinal(int(whole))
    return f"{words} point {spell(decimals)}" if point else words


def number(text: str) -> str:
    """Say a number that stands alone: it may be a year, or a long one that is no amount."""
    if is_year(text):
        return year(int(text))
    if text.isdigit() and len(text) >= _SERIAL_DIGITS and not text.endswith("000"):
        return spell(text)
    return quantity(text)


def is_year(text: str) -> bool:
    """Whether the digits read as a year, 1100 to 2099."""
    return len(text) == 4 and text.isdigit() and 1100 <= int(text) <= 2099
