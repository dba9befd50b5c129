"""Random words: common English ones whose pronunciation the teacher knows."""

from __future__ import annotations

import dataclasses
import functools
import gzip
import json
import random
import re
from importlib import resources

_FREQUENCY_EXPONENT = 0.4  # flattens the frequencies, so that rare words come often
_TOP = 12_000
_CONTRACTION_FREQUENCY = 2e-4
_CONTRACTIONS = (
    *("I'm", "I've", "I'll", "I'd", "you're", "you've", "you'll", "you'd", "he's", "he'll"),
    *("he'd", "she's", "she'll", "she'd", "it's", "it'll", "we're", "we've", "we'll", "we'd"),
    *("they're", "they've", "they'll", "they'd", "that's", "there's", "here's", "what's"),
    *("who's", "where's", "how's", "let's", "don't", "doesn't", "didn't", "can't", "couldn't"),
    *("won't", "wouldn't", "shouldn't", "isn't", "aren't", "wasn't", "weren't", "haven't"),
    *("hasn't", "hadn't", "mustn't", "o'clock"),
)
_SHORT = (
    *("a", "am", "an", "as", "at", "be", "by", "do", "go", "he", "if", "in", "is", "it", "me"),
    *("my", "no", "of", "oh", "on", "or", "ox", "so", "to", "up", "us", "we"),
)
_OFFENSIVE = re.compile(
    r"(mother|bull)?(fuck|shit)|(dumb|jack)?ass(es|holes?)?$|arse$|bastard|bitch|bomb(s|ed|er|ing)?$|"
    r"boob|cocaine|cocks?$|crap|cum$|cunt|damn|dicks?$|erot|fag(s|got|gots)?$|gays?$|genocid|hell$|"
    r"heroin$|hitler|holocaust|hooker|incest|islam|jews?$|jewish|jihad|kill(s|ed|er|ers|ing|ings)?$|"
    r"lesbian|massacre|molest|murder|muslim|naked|nazi|nigg|nude|orgas|paedo|pedo|penis|piss|porn|"
    r"prostitut|psycho$|puss(y|ies)$|rap(e|ed|es|ing|ist|ists)$|retard|semen$|sex|slut|suicid|"
    r"terroris|tits?$|tranny|vagin|whor"
)


@dataclasses.dataclass(frozen=True, slots=True)
class Vocabulary:
    """words as they are written in mid-sentence, and the sum of the draw weights up to each."""

    words: list[str]
    cumulative_weights: list[float]

    @classmethod
    @functools.cache
    def load(cls) -> Vocabulary:
        """Cross the most frequent words with the teacher's lexicon."""
        import wordfreq

        lexicon = _lexicon()
        frequencies = {
            written: wordfreq.word_frequency(word, "en")
            for word in wordfreq.top_n_list("en", _TOP)
            if (written := _written(word, lexicon))
        } | dict.fromkeys(_CONTRACTIONS, _CONTRACTION_FREQUENCY)
        total, sums = 0.0, []
        for frequency in frequencies.values():
            total += frequency**_FREQUENCY_EXPONENT
            sums.append(total)
        return cls(list(frequencies), sums)

    def draw(self, rng: random.Random, count: int) -> list[str]:
        """Return `count` words, rare ones more often than in speech."""
        return rng.choices(self.words, cum_weights=self.cumulative_weights, k=count)


def _lexicon() -> frozenset[str]:
    packed = resources.files("hibari").joinpath("assets/lexicon_us_gold.json.gz").read_bytes()
    return frozenset(json.loads(gzip.decompress(packed)))


def _written(word: str, lexicon: frozenset[str]) -> str | None:
    """Return the word as the lexicon writes it, None where it is not fit to be read aloud."""
    if not re.fullmatch(r"(?=.*[aeiouy])[a-z]{3,}", word) and word not in (*_SHORT, "i"):
        return None
    if _OFFENSIVE.match(word):
        return None
    if word in lexicon and word != "i":
        return word
    return word.capitalize() if word.capitalize() in lexicon else None
