"""Each rule by its name: what it reads, and that without it the text would be read differently."""

from __future__ import annotations

import pytest

from engine.text.normalise import normaliser
from engine.text.normalise.normaliser import RULES, normalised

EXAMPLES = {
    "email": [
        ("john.doe_42@example.co.uk", "john dot doe underscore forty-two at example dot co dot uk"),
        ("Mail a+b@x-y.org.", "Mail a plus b at x dash y dot org."),
    ],
    "url": [
        ("https://www.example.com/docs/v2?x=1#top", "example dot com slash docs slash v two"),
        ("(http://localhost:8000/)", "(localhost)"),
        ("www.example.org, too", "example dot org, too"),
        (f"https://example.com/{'a/' * 30}", "example dot com"),
    ],
    "domain": [
        ("See docs.example.com/api.", "See docs dot example dot com slash api."),
        ("node.js and etc.Then", "node.js and etc.Then"),
    ],
    "phone": [
        ("555-0199", "five five five, zero one nine nine"),
        ("(555) 123-4567", "five five five, one two three, four five six seven"),
        ("1-800-555-0199", "one, eight zero zero, five five five, zero one nine nine"),
        ("020 7946 0958", "zero two zero, seven nine four six, zero nine five eight"),
        ("+44 20 7946 0958", "plus four four, two zero, seven nine four six, zero nine five eight"),
    ],
    "iso_date": [
        ("2024-03-05", "March fifth, twenty twenty-four"),
        ("2024-13-05", "two zero two four, one three, zero five"),
    ],
    "slashed_date": [
        ("3/5/2024", "March fifth, twenty twenty-four"),
        ("3-5-2024", "March fifth, twenty twenty-four"),
        ("25/12/99", "December twenty-fifth, twenty ninety-nine"),
    ],
    "month_and_day": [
        ("March 5, 2024", "March fifth, twenty twenty-four"),
        ("on Mar. 3rd", "on March third"),
        ("June 5-7", "June fifth to seventh"),
        ("March went by. May I go?", "March went by. May I go?"),
    ],
    "month_and_year": [
        ("Sept 2008", "September two thousand eight"),
        ("March 3000", "March three thousand"),
    ],
    "day_and_month": [("on 5 March 1905", "on the fifth of March nineteen oh five")],
    "time_range": [
        ("9-11:30 am", "nine to eleven thirty AM"),
        ("9am-5pm", "nine AM to five PM"),
        ("10 a.m.\u20132 p.m.", "ten AM to two PM"),
    ],
    "half_day_time": [
        ("5pm", "five PM"),
        ("at 10:05 a.m. sharp", "at ten oh five AM sharp"),
        ("7:00 PM", "seven PM"),
    ],
    "clock_range": [("15:00-16:30", "fifteen hundred to sixteen thirty")],
    "clock_time": [
        ("14:30", "fourteen thirty"),
        ("9:00", "nine o'clock"),
        ("14:00", "fourteen hundred"),
    ],
    "price": [
        ("$12.50", "twelve dollars and fifty cents"),
        ("$1", "one dollar"),
        ("$0.99", "ninety-nine cents"),
        ("\u00a31.01", "one pound and one penny"),
        ("$1,299", "one thousand two hundred ninety-nine dollars"),
        ("$2.5 million", "two point five million dollars"),
        ("$3B.", "three billion dollars."),
        ("-$5", "minus five dollars"),
        ("$10-$20", "ten to twenty dollars"),
        ("$3.50\u2013$4", "three dollars and fifty cents to four dollars"),
        ("$9.99/month", "nine dollars and ninety-nine cents per month"),
    ],
    "price_before_currency": [
        ("5\u20ac", "five euros"),
        ("10 USD each", "ten dollars each"),
    ],
    "percentage": [
        ("12.5%", "twelve point five percent"),
        ("5-10 % off", "five to ten percent off"),
        ("\u22123%", "minus three percent"),
    ],
    "fraction_sign": [("2\u00bd", "two and one half"), ("\u00bc", "one quarter")],
    "measure": [
        ("5 km", "five kilometers"),
        ("1 lb", "one pound"),
        ("10\u201315kg", "ten to fifteen kilograms"),
        ("-5\u00b0C", "minus five degrees Celsius"),
        ("50 MB/s", "fifty megabytes per second"),
        ("100 km/h", "one hundred kilometers per hour"),
        ("800 sq ft", "eight hundred square feet"),
        ("5 kittens", "five kittens"),
    ],
    "place": [("1st, 22nd and 111th", "first, twenty-second and one hundred eleventh")],
    "decade": [("1990s and the 80's", "nineteen nineties and the eighties")],
    "fraction": [
        ("1/2", "one half"),
        ("3/4 cup", "three quarters cup"),
        ("2/3", "two thirds"),
        ("24/7", "twenty-four seven"),
        ("50/50", "fifty fifty"),
    ],
    "code": [("978-3-16", "nine seven eight, three, one six")],
    "proportion": [("16:9", "sixteen to nine")],
    "number_range": [
        ("10-15", "ten to fifteen"),
        ("2019\u20132023", "twenty nineteen to twenty twenty-three"),
    ],
    "version": [("2.10.3", "two point ten point three")],
    "plain_number": [
        ("1,234.5", "one thousand two hundred thirty-four point five"),
        ("1500 in 1999", "fifteen hundred in nineteen ninety-nine"),
        ("007", "zero zero seven"),
        ("12345678", "one two three four five six seven eight"),
        ("3000000", "three million"),
        ("GPT-4 and B2B", "GPT-four and B2B"),
        ("a 10-year-old", "a ten-year-old"),
        ("10x", "ten times"),
        ("-3", "minus three"),
    ],
    "about": [("~20", "about twenty"), ("~ $5", "about five dollars")],
    "comparison": [("< 5", "less than five")],
    "number_sign": [("#5", "number five")],
    "named_sign": [
        ("R&D", "R and D"),
        ("a = b", "a equals b"),
        ("x^2", "x to the power of two"),
        ("C++.", "C plus plus."),
    ],
    "underscore": [("snake_case", "snake case")],
    "silent_sign": [("#tag \u00ae", "tag "), ("<b>", "b")],
}
CASES = [(name, *case) for name, cases in EXAMPLES.items() for case in cases]


@pytest.mark.parametrize(("name", "written", "said"), CASES)
def test_what_a_rule_says(name: str, written: str, said: str) -> None:
    assert normalised(written) == said
    # In a sentence, and before another word.
    assert normalised(f"So {written} then") == f"So {said} then".replace("  ", " ")


def test_every_rule_has_examples() -> None:
    assert [rule.name for rule in RULES] == list(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_without_the_rule_its_examples_differ(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    others = tuple(rule for rule in RULES if rule.name != name)
    monkeypatch.setattr(normaliser, "RULES", others)
    assert any(normalised(written) != said for written, said in EXAMPLES[name])
