"""Prices, percentages, measures and bare numbers."""

from __future__ import annotations

import re

from engine.text.normalise.numbers import (
    MAX_DIGITS,
    cardinal,
    number,
    ordinal,
    quantity,
    spell,
    year,
)
from engine.text.normalise.rule import MINUS, NUMBER, TO, rule

# symbol: (one, many, a hundredth, hundredths)
_MONEY = {
    "$": ("dollar", "dollars", "cent", "cents"),
    "\u20ac": ("euro", "euros", "cent", "cents"),
    "\u00a3": ("pound", "pounds", "penny", "pence"),
    "\u20b9": ("rupee", "rupees", "paisa", "paise"),
    "\u00a5": ("yen", "yen", "sen", "sen"),
}
_CODES = {"USD": "$", "EUR": "\u20ac", "GBP": "\u00a3", "INR": "\u20b9", "JPY": "\u00a5"}
_SYMBOL = f"[{''.join(_MONEY)}]"
_SCALES = {"k": "thousand", "m": "million", "b": "billion", "bn": "billion", "t": "trillion"}
_SCALE = r"(?:(?P<short>[kKmMBT]|bn)(?![^\W_])|\s(?P<scale>thousand|million|billion|trillion))?"
_PER = {
    "h": "hour", "hr": "hour", "hour": "hour", "day": "day", "wk": "week", "week": "week",
    "mo": "month", "month": "month", "yr": "year", "year": "year", "person": "person",
    "night": "night", "user": "user", "kg": "kilogram", "lb": "pound", "unit": "unit",
}  # fmt: skip
_EACH = rf"(?:\s?/\s?(?P<per>{'|'.join(sorted(_PER, key=len, reverse=True))}))?"
# as written: (one, many)
_UNITS = {
    "km": ("kilometer", "kilometers"), "m": ("meter", "meters"),
    "cm": ("centimeter", "centimeters"), "mm": ("millimeter", "millimeters"),
    "km\u00b2": ("square kilometer", "square kilometers"),
    "m\u00b2": ("square meter", "square meters"),
    "mi": ("mile", "miles"), "ft": ("foot", "feet"), "yd": ("yard", "yards"),
    "sq ft": ("square foot", "square feet"),
    "kg": ("kilogram", "kilograms"), "g": ("gram", "grams"), "mg": ("milligram", "milligrams"),
    "lb": ("pound", "pounds"), "lbs": ("pound", "pounds"), "oz": ("ounce", "ounces"),
    "L": ("liter", "liters"), "l": ("liter", "liters"), "mL": ("milliliter", "milliliters"),
    "ml": ("milliliter", "milliliters"), "tbsp": ("tablespoon", "tablespoons"),
    "tsp": ("teaspoon", "teaspoons"),
    "km/h": ("kilometer per hour", "kilometers per hour"),
    "m/s": ("meter per second", "meters per second"),
    "mph": ("mile per hour", "miles per hour"),
    "h": ("hour", "hours"), "hr": ("hour", "hours"), "hrs": ("hour", "hours"),
    "min": ("minute", "minutes"), "mins": ("minute", "minutes"),
    "sec": ("second", "seconds"), "secs": ("second", "seconds"),
    "ms": ("millisecond", "milliseconds"),
    "Hz": ("hertz", "hertz"), "kHz": ("kilohertz", "kilohertz"),
    "MHz": ("megahertz", "megahertz"), "GHz": ("gigahertz", "gigahertz"),
    "KB": ("kilobyte", "kilobytes"), "kB": ("kilobyte", "kilobytes"),
    "MB": ("megabyte", "megabytes"), "GB": ("gigabyte", "gigabytes"),
    "KB/s": ("kilobyte per second", "kilobytes per second"),
    "MB/s": ("megabyte per second", "megabytes per second"),
    "GB/s": ("gigabyte per second", "gigabytes per second"),
    "TB": ("terabyte", "terabytes"), "Mbps": ("megabit per second", "megabits per second"),
    "W": ("watt", "watts"), "kW": ("kilowatt", "kilowatts"),
    "kWh": ("kilowatt hour", "kilowatt hours"), "V": ("volt", "volts"),
    "kcal": ("kilocalorie", "kilocalories"), "cal": ("calorie", "calories"),
    "\u00b0C": ("degree Celsius", "degrees Celsius"),
    "\u00b0F": ("degree Fahrenheit", "degrees Fahrenheit"), "\u00b0": ("degree", "degrees"),
}  # fmt: skip
_UNIT = "|".join(re.escape(unit) for unit in sorted(_UNITS, key=len, reverse=True))
_SIGN = rf"(?P<minus>{MINUS})?"
_FROM = rf"(?:(?P<low>{NUMBER}){TO})?"
_PARTS = {2: ("half", "halves"), 4: ("quarter", "quarters")}
_PART_SIGNS = {
    "\u00bd": "one half", "\u00bc": "one quarter", "\u00be": "three quarters",
    "\u2153": "one third", "\u2154": "two thirds",
}  # fmt: skip


@rule(
    rf"{_SIGN}(?P<symbol>{_SYMBOL})\s?(?:(?P<low>{NUMBER}){TO}{_SYMBOL}?)?(?P<amount>{NUMBER})"
    rf"{_SCALE}{_EACH}"
)
def price(match: re.Match[str]) -> str | None:
    """$12.50, $2.5 million, -$3, $10-20, $9/month"""
    return _money(match, match["symbol"])


@rule(rf"{_FROM}(?P<amount>{NUMBER}){_SCALE}\s?(?P<code>{'|'.join(_CODES)}|[{''.join(_MONEY)}])")
def price_before_currency(match: re.Match[str]) -> str | None:
    """10 USD, 5\u20ac"""
    return _money(match, _CODES.get(match["code"], match["code"]))


def _money(match: re.Match[str], symbol: str) -> str:
    groups = match.groupdict()
    one, many, *_ = _MONEY[symbol]
    whole, _, cents = match["amount"].replace(",", "").partition(".")
    scale = groups["scale"] or _SCALES.get((groups["short"] or "").lower(), "")
    low = groups["low"]
    is_round = bool(low) and "." not in f"{low}{match['amount']}"
    if scale or len(cents) not in (0, 2) or len(whole) > MAX_DIGITS or is_round:
        unit = one if match["amount"] == "1" and not scale and not low else many
        words = [*_low(low), quantity(match["amount"]), scale, unit]
    else:
        words = [_coins(low, symbol), "to"] if low else []
        words.append(_coins(match["amount"], symbol))
    each = groups.get("per")
    sign = ["minus"] if groups.get("minus") else []
    return " ".join(w for w in [*sign, *words, *(["per", _PER[each]] if each else [])] if w)


def _coins(amount: str, symbol: str) -> str:
    one, many, hundredth, hundredths = _MONEY[symbol]
    whole, _, cents = amount.replace(",", "").partition(".")
    parts = []
    if int(whole) or not int(cents or "0"):
        parts.append(f"{quantity(whole)} {one if int(whole) == 1 else many}")
    if int(cents or "0"):
        parts.append(f"{cardinal(int(cents))} {hundredth if int(cents) == 1 else hundredths}")
    return " and ".join(parts)


def _low(low: str | None) -> list[str]:
    return [quantity(low), "to"] if low else []


@rule(rf"{_SIGN}{_FROM}(?P<amount>{NUMBER})\s?%", whole=False)
def percentage(match: re.Match[str]) -> str | None:
    """12.5%, 5-10 %"""
    sign = ["minus"] if match["minus"] else []
    return " ".join([*sign, *_low(match["low"]), quantity(match["amount"]), "percent"])


@rule(rf"{_SIGN}{_FROM}(?P<amount>{NUMBER})\s?(?P<unit>{_UNIT})")
def measure(match: re.Match[str]) -> str | None:
    """5 km, 72\u00b0F, 3-4 lbs"""
    one, many = _UNITS[match["unit"]]
    unit = one if match["amount"] == "1" and not match["low"] else many
    sign = ["minus"] if match["minus"] else []
    return " ".join([*sign, *_low(match["low"]), quantity(match["amount"]), unit])


@rule(r"(?P<number>\d{1,3}(?:,\d{3})+|\d{1,15})(?:st|nd|rd|th)")
def place(match: re.Match[str]) -> str | None:
    """21st"""
    return ordinal(int(match["number"].replace(",", "")))


@rule(r"'?(?P<decade>(?:1[1-9]|20)?\d0)'?s")
def decade(match: re.Match[str]) -> str | None:
    """1990s, 80s"""
    digits = match["decade"]
    words = year(int(digits)) if len(digits) == 4 else cardinal(int(digits))
    return f"{words[:-1]}ies" if words.endswith("y") else f"{words}s"


@rule(r"(?P<top>\d{1,3})/(?P<bottom>\d{1,3})")
def fraction(match: re.Match[str]) -> str | None:
    """3/4; 24/7, 50/50 and 9/11 are two numbers"""
    top, bottom = int(match["top"]), int(match["bottom"])
    if not 0 < top < bottom <= 10:
        return f"{cardinal(top)} {cardinal(bottom)}"
    names = _PARTS.get(bottom) or (ordinal(bottom), f"{ordinal(bottom)}s")
    return f"{cardinal(top)} {names[0] if top == 1 else names[1]}"


@rule(rf"(?:(?P<whole>\d+)\s?)?(?P<sign>[{''.join(_PART_SIGNS)}])", whole=False)
def fraction_sign(match: re.Match[str]) -> str | None:
    """2\u00bd"""
    part = _PART_SIGNS[match["sign"]]
    return f"{quantity(match['whole'])} and {part}" if match["whole"] else part


@rule(r"\d+(?:-\d+){2,6}")
def code(match: re.Match[str]) -> str | None:
    """978-3-16-148410-0"""
    return ", ".join(spell(group) for group in match.group().split("-"))


@rule(r"(?P<left>\d{1,3}):(?P<right>\d{1,3})")
def proportion(match: re.Match[str]) -> str | None:
    """16:9"""
    return f"{cardinal(int(match['left']))} to {cardinal(int(match['right']))}"


@rule(rf"(?P<low>{NUMBER}){TO}(?P<high>{NUMBER})(?!-\d)")
def number_range(match: re.Match[str]) -> str | None:
    """10-15; a year and a month are none"""
    if match["high"][0] == "0" and len(match["high"]) > 1:
        return None
    return f"{number(match['low'])} to {number(match['high'])}"


@rule(r"\d+(?:\.\d+){2,7}")
def version(match: re.Match[str]) -> str | None:
    """2.10.3"""
    return " point ".join(quantity(part) for part in match.group().split("."))


@rule(rf"{_SIGN}(?P<number>{NUMBER})(?P<times>x(?![^\W_]))?")
def plain_number(match: re.Match[str]) -> str | None:
    """1,234.5"""
    words = number(match["number"])
    return ("minus " if match["minus"] else "") + words + (" times" if match["times"] else "")


RULES = (
    price,
    price_before_currency,
    percentage,
    fraction_sign,
    measure,
    place,
    decade,
    fraction,
    code,
    proportion,
    number_range,
    version,
    plain_number,
)
