"""The grammar of the training sentences; the random words need a package and are soak tests."""

from __future__ import annotations

import random
import re

import pytest

from engine.train.corpus.grammar import Grammar, number_words, plural, sentence_case
from engine.train.corpus.sentences import normalised

GRAMMAR = Grammar.load()
TEMPLATES = [template for domain in GRAMMAR.domains for template in domain]


def test_there_are_many_templates() -> None:
    assert len(TEMPLATES) >= 250
    assert len(set(TEMPLATES)) == len(TEMPLATES)


@pytest.mark.parametrize("name", sorted(GRAMMAR.slots))
def test_a_slot_expands_to_plain_words(name: str) -> None:
    rng = random.Random(name)
    for _ in range(30):
        text = GRAMMAR.expand("{" + name + "}", rng)
        assert text
        assert not re.search(r"[{}\[\]()|+]", text), text


def test_a_template_expands_to_a_sentence() -> None:
    rng = random.Random(3)
    for template in TEMPLATES:
        text = sentence_case(GRAMMAR.expand(template, rng))
        assert text[0].isupper() or not text[0].isalpha(), text
        assert text[-1] in ".?!", text
        assert not re.search(r"[{}\[\]()|+]|  | [,.?!]", text), text


def test_slots_vary_and_a_seed_repeats_them() -> None:
    def made(seed: int) -> list[str]:
        rng = random.Random(seed)
        return [GRAMMAR.expand("{np} and {name}, {2..99}", rng) for _ in range(50)]

    assert made(1) == made(1) != made(2)
    assert len(set(made(1))) == 50


def test_choices_options_and_ranges() -> None:
    grammar = Grammar({"end": ["day", "(week|month)"]}, [])
    rng = random.Random(0)
    made = {grammar.expand("(one|two)[ more] {end}", rng) for _ in range(200)}
    assert made == {
        f"{number}{more} {end}"
        for number in ("one", "two")
        for more in ("", " more")
        for end in ("day", "week", "month")
    }
    assert {grammar.expand("{3..4#}", rng) for _ in range(50)} == {"3", "4"}
    assert {grammar.expand("{3..4}", rng) for _ in range(50)} == {"three", "four"}


def test_an_unknown_slot_is_named() -> None:
    with pytest.raises(KeyError, match="nowhere"):
        GRAMMAR.expand("{nowhere}", random.Random(0))


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "zero"),
        (19, "nineteen"),
        (40, "forty"),
        (99, "ninety-nine"),
        (700, "seven hundred"),
        (415, "four hundred and fifteen"),
    ],
)
def test_numbers_in_words(number: int, words: str) -> None:
    assert number_words(number) == words


@pytest.mark.parametrize(
    ("noun", "many"),
    [
        ("box", "boxes"),
        ("match", "matches"),
        ("story", "stories"),
        ("day", "days"),
        ("apple", "apples"),
        ("child", "children"),
    ],
)
def test_plurals(noun: str, many: str) -> None:
    assert plural(noun) == many


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("a apple and a hour", "An apple and an hour"),
        ("an unit of a one-way trip", "A unit of a one-way trip"),
        ("a U-turn", "A U-turn"),
        ('"it is," he said', '"It is," he said'),
    ],
)
def test_sentence_case_and_articles(text: str, written: str) -> None:
    assert sentence_case(text) == written


def test_normalised_leaves_the_words() -> None:
    assert (
        normalised("  Don't — it\N{RIGHT SINGLE QUOTATION MARK}s 5 O'Clock, ok?")
        == "don't it's 5 o'clock ok"
    )
