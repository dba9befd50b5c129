"""What each model's released pipeline does with a text before the tokenizer; all of it can be off.

The rules themselves are beside this: `normaliser`, `dialogue`, `voice_design`, `clean`. Models that
are not in `RULES` were trained on the text as it is written.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from engine.text.clean import Language, clean, language, spell_hyphens
from engine.text.dialogue import normalise_dialogue
from engine.text.normaliser import normalise
from engine.text.voice_design import normalise_description, normalise_text

Normalise = Callable[[str], str]


class NormaliserUnavailable(ValueError):
    """A normaliser that was asked for is not installed; the message says how to install it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Rules:
    """What one model's pipeline does with the text to speak, and with a description of the voice.

    `reads_numbers`: it can have WeText write numbers, dates and units as words in between.
    """

    text: Normalise
    description: Normalise = str
    reads_numbers: bool = False


RULES: Final[Mapping[str, Rules]] = MappingProxyType(
    {
        "tts": Rules(normalise),
        "ttsd": Rules(normalise_dialogue),
        "voice_generator": Rules(normalise_text, normalise_description),
        "nano": Rules(clean, reads_numbers=True),
    }
)
"""By `engine.models.variants` name."""


def as_released(
    variant: str, text: str, *, wetext: bool = False, english_voice: bool = False
) -> str:
    """Return `text` as the model's released pipeline gives it to the tokenizer.

    With `wetext` numbers become words between two rounds of the model's own rules. `english_voice`
    decides the language of texts without a letter. Raises `ValueError` where the pipeline has no
    WeText, and `NormaliserUnavailable` where it is not installed.
    """
    rules = RULES.get(variant)
    if wetext and not (rules and rules.reads_numbers):
        having = ", ".join(name for name, rules in RULES.items() if rules.reads_numbers)
        raise ValueError(
            f"wetext is no part of the pipeline of {variant!r}; models that have it: {having}"
        )
    if rules is None:
        return text
    text = rules.text(text)
    if wetext:
        text = rules.text(read_numbers(text, language(text, english_voice=english_voice)))
    return text


def read_numbers(text: str, spoken: Language) -> str:
    """Return `text` with numbers, dates and units as words of the language, by WeText.

    Interjections and the Chinese `erhua` stay. Raises `NormaliserUnavailable`.
    """
    if spoken == "zh":
        text = spell_hyphens(text)
    words: str = _wetext(spoken).normalize(text)
    return words


@functools.cache
def _wetext(spoken: Language) -> Any:
    # It takes a second and 50 MB, which only those pay who ask for it.
    try:
        from wetext import Normalizer
    except ImportError as error:
        raise NormaliserUnavailable(
            "wetext is not installed: leave it off, or pip install 'moss-realtime[wetext]'"
        ) from error
    return Normalizer(lang=spoken, operator="tn")
