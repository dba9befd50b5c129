"""Whole training sentences, with random words from the teacher's lexicon."""

from __future__ import annotations

import itertools
import re

import pytest

from engine.train.corpus.sentences import normalised, sentences
from engine.train.corpus.vocabulary import Vocabulary
from engine.train.evaluation.texts import held_out

COUNT = 20_000


@pytest.fixture(scope="module")
def made() -> list[str]:
    return list(itertools.islice(sentences(1), COUNT))


def test_sentences_are_distinct_and_the_same_for_a_seed(made: list[str]) -> None:
    assert len({normalised(text) for text in made}) == COUNT
    assert list(itertools.islice(sentences(1), 500)) == made[:500]
    assert list(itertools.islice(sentences(2), 500)) != made[:500]


def test_sentences_are_written_and_sized_as_speech(made: list[str]) -> None:
    assert [text for text in made if re.search(r"[{}\[\]()|+_]|  |\.\.", text)] == []
    lengths = [len(normalised(text).split()) for text in made]
    assert max(lengths) <= 26
    assert sum(3 <= length <= 18 for length in lengths) > 0.85 * COUNT


def test_what_is_excluded_does_not_come_not_even_as_a_part(made: list[str]) -> None:
    short = frozenset(normalised(text) for text in made[:100])
    parts = {
        normalised(part)
        for text in itertools.islice(sentences(1, short), 5000)
        for part in (text, *re.split(r"[.?!]", text))
    }
    assert short.isdisjoint(parts)


def test_no_evaluation_text_comes_up_by_chance(made: list[str]) -> None:
    assert held_out().isdisjoint(map(normalised, made))


def test_contractions_and_rare_words_are_covered(made: list[str]) -> None:
    text = " ".join(map(normalised, made)).split()
    said = set(text)
    for word in ("i'm", "don't", "you're", "it's", "we'll", "can't", "they've", "isn't", "let's"):
        assert text.count(word) >= 20, word
    vocabulary = {word.lower() for word in Vocabulary.load().words}
    assert len(vocabulary) > 7000
    assert len(vocabulary & said) > 0.9 * len(vocabulary)


def test_words_nobody_wants_to_hear_are_left_out() -> None:
    words = set(Vocabulary.load().words)
    assert words.isdisjoint({"shit", "porn", "nazi", "rape", "bomb", "killing"})
    assert {"skill", "rapid", "canal", "jewelry", "cocktail", "class", "scrap"} <= words
