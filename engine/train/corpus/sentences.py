"""Endless distinct training sentences: a grammar of agent speech, random words, lists.

The mix decides what the voice can say. The grammar (templates.txt, slots.txt) gives it the rhythm
of an agent's speech, the random words the way from spelling to sound for any word.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator

from engine.train.corpus.grammar import Grammar, sentence_case
from engine.train.corpus.vocabulary import Vocabulary

_AGENT, _WORDS = 0.55, 0.35  # the rest are lists and openers
_MAX_WORDS = 26
_CARRIERS = (
    "The word is {}.",
    "Please spell {} for me.",
    "Did you say {} or {}?",
    "I said {}, not {}.",
    "It's called {} {}.",
    "What does {} mean?",
    "Let's talk about {} and {}.",
    "We don't have any {} here.",
    "She's looking for the {} {}.",
    "The {} was {}, wasn't it?",
    "They're {} and we're {}.",
    "He'd rather have {} than {}.",
    "You'll need {}, {}, and {}.",
)


def sentences(seed: int, excluded: frozenset[str] = frozenset()) -> Iterator[str]:
    """Yield distinct sentences for ever, the same ones for a seed.

    excluded: `normalised` texts that must not be yielded, nor be a sentence of what is.
    """
    rng = random.Random(seed)
    grammar, vocabulary = Grammar.load(), Vocabulary.load()
    makers: tuple[Callable[[], str], ...] = (
        lambda: _utterance(rng, grammar),
        lambda: _random_words(rng, vocabulary),
        lambda: _list_or_opener(rng, grammar, vocabulary),
    )
    weights = (_AGENT, _WORDS, 1 - _AGENT - _WORDS)
    seen: set[str] = set()
    while True:
        (make,) = rng.choices(makers, weights)
        text = _fresh(make, seen, excluded)
        seen.add(normalised(text))
        yield text


def normalised(text: str) -> str:
    """Return the words of `text` alone, in lower case, one space between them."""
    straight = text.replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    return " ".join(re.findall(r"[a-z0-9]+(?:'[a-z]+)*", straight.lower()))


def _fresh(make: Callable[[], str], seen: set[str], excluded: frozenset[str]) -> str:
    while True:
        text = make()
        whole = normalised(text)
        if whole in seen or len(whole.split()) > _MAX_WORDS:
            continue
        if excluded.isdisjoint({whole, *map(normalised, re.split(r"[.?!:]", text))}):
            return text


def _utterance(rng: random.Random, grammar: Grammar) -> str:
    """Return one to three sentences of one domain, with an opener now and then."""
    domain = rng.choices(grammar.domains, [len(domain) for domain in grammar.domains])[0]
    (count,) = rng.choices((1, 2, 3), (70, 24, 6))
    parts = [grammar.expand(rng.choice(domain), rng) for _ in range(count)]
    if rng.random() < 0.12:
        opener = grammar.expand("{opener}", rng)
        parts.insert(0, opener + rng.choice(".....!"))
    elif rng.random() < 0.08:
        parts[0] = grammar.expand("{lead}, ", rng) + _lower_first(parts[0])
    return " ".join(map(sentence_case, parts)).replace("m..", "m.")  # five p.m..


def _random_words(rng: random.Random, vocabulary: Vocabulary) -> str:
    return sentence_case(_punctuated(rng, vocabulary.draw(rng, rng.randint(3, 12))))


def _punctuated(rng: random.Random, words: list[str]) -> str:
    for place in range(1, len(words) - 2):
        if rng.random() < 0.1:
            words[place] += ","
    return " ".join(words) + rng.choice("......??!")


def _list_or_opener(rng: random.Random, grammar: Grammar, vocabulary: Vocabulary) -> str:
    kind = rng.random()
    if kind < 0.25:
        words = vocabulary.draw(rng, rng.randint(2, 5))
        return sentence_case(", ".join(words) + ".")
    if kind < 0.5:
        slot = rng.choice(("food", "name", "city", "noun", "np", "thing", "color", "np", "day"))
        items = [grammar.expand("{" + slot + "}", rng) for _ in range(rng.randint(3, 5))]
        joint = rng.choice((", and ", ", or ", " and "))
        return sentence_case(", ".join(items[:-1]) + joint + items[-1] + ".")
    if kind < 0.75:
        carrier = rng.choice(_CARRIERS)
        return sentence_case(carrier.format(*vocabulary.draw(rng, carrier.count("{}"))))
    opener = grammar.expand(rng.choice(("{opener}.", "{lead},", "{lead},")), rng)
    rest = _punctuated(rng, vocabulary.draw(rng, rng.randint(2, 8)))
    return sentence_case(f"{opener} {sentence_case(rest) if opener.endswith('.') else rest}")


def _lower_first(text: str) -> str:
    """Undo the capital of a sentence's first word, unless the word always has one."""
    first = text.split(maxsplit=1)[0].strip('",.?!:')
    ordinary = {
        "the",
        "a",
        "an",
        "you",
        "your",
        "it",
        "it's",
        "that",
        "we",
        "they",
        "there",
        "this",
    }
    return text[0].lower() + text[1:] if first.lower() in ordinary else text
