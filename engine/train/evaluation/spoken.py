"""The words of a text as they are heard, whichever way they are written.

A recogniser writes "7:30 p.m." or "seven thirty PM" as it likes, so both sides of a comparison
come here first.
"""

from __future__ import annotations

import re

from engine.train.evaluation.numerals import joined_numbers

_CURRENCIES = (("[$]", "dollars"), ("\u00a3", "pounds"), ("\u20ac", "euros"))
_SPELLINGS = (
    (r"(?<=\d),(?=\d{3}\b)", ""),
    *((rf"{sign}(\d+)\.(\d\d)\b", rf"\1 {name} and \2 cents") for sign, name in _CURRENCIES),
    *((rf"{sign}(\d+)", rf"\1 {name}") for sign, name in _CURRENCIES),
    (r"[\u2018\u2019]", "'"),
    (r"%", " percent"),
    (r"\b([ap])\.? ?m\b\.?", r" \1m "),
    (r"\bo'clock\b|(?<=\d):00\b", " "),
    (r"(?<=\d)\.(?=\d)", " point "),
    (
        r"\b(can|do|does|did|is|are|was|were|have|has|had|would|could|should|must|need)n't\b",
        r"\1 not",
    ),
    (r"\bwon't\b", "will not"),
    (r"\bcan't\b|\bcannot\b", "can not"),
    (r"\b(i)'m\b", r"\1 am"),
    (r"\blet's\b", "let us"),
    (r"\b(he|she|it|that|there|here|what|who|where|how|when)'s\b", r"\1 is"),
    (r"'ll\b", " will"),
    (r"'d\b", " would"),
    (r"'ve\b", " have"),
    (r"'re\b", " are"),
    (r"'", ""),
    (r"\b(mr|mister)\b", "mister"),
    (r"\b(dr)\b", "doctor"),
    (r"\b(ok)\b", "okay"),
    (r"\balright\b", "all right"),
    (r"\bgonna\b", "going to"),
    (r"\bgotta\b", "got to"),
    (r"\bkinda\b", "kind of"),
    (r"\bwanna\b", "want to"),
    (r"\be-mail", "email"),
    (r"\bgrey", "gray"),
    (r"\btheatre", "theater"),
    (r"\b(col|fav|flav|lab|hum|hon|harb|neighb)our", r"\1or"),
    (r"\bcancell", "cancel"),
    (r"\btravell", "travel"),
)


def spoken_words(text: str) -> list[str]:
    """Return the words that are heard: lower case, numbers as digits, no punctuation."""
    text = text.lower()
    for pattern, replacement in _SPELLINGS:
        text = re.sub(pattern, replacement, text)
    return joined_numbers(re.findall(r"\d+(?:st|nd|rd|th)\b|\d+|[^\W\d_]+", text))
