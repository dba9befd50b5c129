"""Texts that are spoken alike compare alike, however they are written."""

from __future__ import annotations

import pytest

from engine.train.evaluation.spoken import spoken_words


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("two", "2"),
        ("twenty-five", "25"),
        ("a hundred", "100"),
        ("one hundred and twenty", "120"),
        ("two thousand and five", "2005"),
        ("nineteen ninety nine", "1999"),
        ("twenty twenty-five", "2025"),
        ("two million three hundred thousand", "2,300,000"),
        ("one thousand two hundred", "1,200"),
        ("seven thirty p.m.", "7:30 PM"),
        ("at three o'clock", "at 3:00"),
        ("half past two", "half past 2"),
        ("ten forty-five", "10:45"),
        ("the twenty-first of May", "the 21st of May"),
        ("the thirtieth", "the 30th"),
        ("twelfth", "12th"),
        ("five dollars and fifty cents", "$5.50"),
        ("ninety dollars", "$90"),
        ("thirty percent", "30%"),
        ("three point five", "3.5"),
        ("one two three, four", "123-4"),
        ("I'm sure it's fine", "I am sure it is fine"),
        ("we can't, they won't", "We cannot. They will not!"),
        ("let's", "let us"),
        ("Doctor Hall", "Dr. Hall"),
        ("okay, all right", "OK alright"),
        ("your favourite colour", "Your favorite color"),
        ("Sam's house", "Sam\N{RIGHT SINGLE QUOTATION MARK}s house"),
    ],
)
def test_these_are_spoken_alike(one: str, other: str) -> None:
    assert spoken_words(one) == spoken_words(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("fifteen", "50"),
        ("two hundred", "2"),
        ("twenty-five", "2005"),
        ("the first", "one"),
        ("I can", "I can't"),
        ("four hours", "our"),
        ("a million", "a thousand"),
        ("it's", "its"),
    ],
)
def test_these_are_not(one: str, other: str) -> None:
    assert spoken_words(one) != spoken_words(other)


def test_other_words_stay_as_they_are() -> None:
    assert spoken_words("The half-open door, and a thousand more ...") == [
        *("the", "half", "open", "door", "and", "1000", "more"),
    ]
    assert spoken_words("A hundred and more") == ["100", "and", "more"]
    assert spoken_words(" - ") == []
