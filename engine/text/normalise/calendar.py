"""Dates and times of day."""

from __future__ import annotations

import re

from engine.text.normalise.numbers import cardinal, is_year, number, ordinal, year
from engine.text.normalise.rule import TO, rule

_MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_BY_ABBREVIATION = {month[:3]: month for month in _MONTHS} | {"Sept": "September"}
MONTH = rf"(?P<month>{'|'.join(_MONTHS)}|(?:{'|'.join(_BY_ABBREVIATION)})\.?)"
_DAY = r"(?P<day>0?[1-9]|[12]\d|3[01])(?:st|nd|rd|th)?"
_CLOCK = r"(?P<{0}hour>[01]?\d|2[0-4])(?::(?P<{0}minute>[0-5]\d)(?::[0-5]\d)?)?"
_FROM_HALF = r"(?:\s?(?P<from_half>[aApP])(?:\.[mM]\.|[mM]))?"
_HALF = r"\s?(?P<half>[aApP])(?:\.[mM]\.|[mM])"


def _month(text: str) -> str:
    return _BY_ABBREVIATION[text.rstrip(".")[:3]]


@rule(r"(?P<year>\d{4})-(?P<month>0[1-9]|1[0-2])-(?P<day>0[1-9]|[12]\d|3[01])")
def iso_date(match: re.Match[str]) -> str | None:
    """2024-03-05"""
    month, day = _MONTHS[int(match["month"]) - 1], ordinal(int(match["day"]))
    return f"{month} {day}, {number(match['year'])}"


@rule(r"(?P<first>\d{1,2})(?P<sign>[/-])(?P<second>\d{1,2})(?P=sign)(?P<year>\d{4}|\d{2})")
def slashed_date(match: re.Match[str]) -> str | None:
    """3/5/2024 and 3-5-2024: the month first, unless that cannot be"""
    month, day = int(match["first"]), int(match["second"])
    if month > 12:
        month, day = day, month
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return None
    digits = match["year"] if len(match["year"]) == 4 else f"20{match['year']}"
    return f"{_MONTHS[month - 1]} {ordinal(day)}, {number(digits)}"


@rule(rf"{MONTH} {_DAY}(?:{TO}(?P<last>0?[1-9]|[12]\d|3[01])(?:st|nd|rd|th)?)?")
def month_and_day(match: re.Match[str]) -> str | None:
    """Mar. 5 and March 5-7; what follows, as a year, is read by itself"""
    last = f" to {ordinal(int(match['last']))}" if match["last"] else ""
    return f"{_month(match['month'])} {ordinal(int(match['day']))}{last}"


@rule(rf"{MONTH}(?P<comma>,?) (?P<year>\d{{4}})")
def month_and_year(match: re.Match[str]) -> str | None:
    """Mar 2024"""
    if not is_year(match["year"]):
        return None
    return f"{_month(match['month'])}{match['comma']} {year(int(match['year']))}"


@rule(rf"{_DAY} {MONTH}")
def day_and_month(match: re.Match[str]) -> str | None:
    """5 March"""
    return f"the {ordinal(int(match['day']))} of {_month(match['month'])}"


@rule(rf"{_CLOCK.format('from_')}{_FROM_HALF}{TO}{_CLOCK.format('')}{_HALF}")
def time_range(match: re.Match[str]) -> str | None:
    """9-11:30 am"""
    start = _clock(match["from_hour"], match["from_minute"], bare=True)
    start += f" {match['from_half'].upper()}M" if match["from_half"] else ""
    end = _clock(match["hour"], match["minute"], bare=True)
    return f"{start} to {end} {match['half'].upper()}M"


@rule(rf"{_CLOCK.format('')}{_HALF}")
def half_day_time(match: re.Match[str]) -> str | None:
    """5pm, 10:30 a.m."""
    return f"{_clock(match['hour'], match['minute'], bare=True)} {match['half'].upper()}M"


@rule(r"(?P<hour>[01]?\d|2[0-4]):(?P<minute>[0-5]\d)(?::[0-5]\d)?")
def clock_time(match: re.Match[str]) -> str | None:
    """14:30"""
    return _clock(match["hour"], match["minute"], bare=False)


@rule(rf"(?P<from>\d{{1,2}}:\d{{2}}){TO}(?P<to>\d{{1,2}}:\d{{2}})")
def clock_range(match: re.Match[str]) -> str | None:
    """15:00-16:30"""
    ends = (match[end].split(":") for end in ("from", "to"))
    return " to ".join(_clock(hour, minute, bare=False) for hour, minute in ends)


def _clock(hour: str, minute: str | None, *, bare: bool) -> str:
    hours = cardinal(int(hour))
    if minute is None or int(minute) == 0:
        if bare or minute is None:
            return hours
        return f"{hours} o'clock" if 1 <= int(hour) <= 12 else f"{hours} hundred"
    return f"{hours} {'oh ' if minute[0] == '0' else ''}{cardinal(int(minute))}"


RULES = (
    iso_date,
    slashed_date,
    month_and_day,
    month_and_year,
    day_and_month,
    time_range,
    half_day_time,
    clock_range,
    clock_time,
)
