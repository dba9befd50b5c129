"""What a model can do with a request for speech, as data. Loads no torch.

Whoever takes requests asks these and need not know which model runs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, get_args

Field = Literal[
    "ref_audio",
    "ref_text",
    "speakers",
    "language",
    "instructions",
    "ambient_sound",
    "sound_event",
    "quality",
    "duration_seconds",
    "history",
    "n_vq",
]
"""A part of a request, beside its text, that some models take and others do not.

`ref_audio` stands for every way to name one voice to speak with.
"""

Normalizer = Literal["released", "wetext", "off"]
"""What happens to a text before the tokenizer: what the model's released pipeline does, the same
with numbers and dates as words, or nothing."""

FIELDS: tuple[Field, ...] = get_args(Field)

LANGUAGES: Mapping[str, str] = MappingProxyType(
    {
        **{"zh": "Chinese", "yue": "Cantonese", "en": "English", "ar": "Arabic", "cs": "Czech"},
        **{"da": "Danish", "nl": "Dutch", "fi": "Finnish", "fr": "French", "de": "German"},
        **{"el": "Greek", "he": "Hebrew", "hi": "Hindi", "hu": "Hungarian", "it": "Italian"},
        **{"ja": "Japanese", "ko": "Korean", "mk": "Macedonian", "ms": "Malay"},
        **{"fa": "Persian (Farsi)", "pl": "Polish", "pt": "Portuguese", "ro": "Romanian"},
        **{"ru": "Russian", "es": "Spanish", "sw": "Swahili", "sv": "Swedish", "tl": "Tagalog"},
        **{"th": "Thai", "tr": "Turkish", "vi": "Vietnamese"},
    }
)
"""ISO 639 code to the name that the family was trained with."""

EXAMPLE: Mapping[str, Any] = MappingProxyType({"input": "Hello! How are you today?"})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a model takes, with its limits.

    `takes` are the fields it can use, `requires` those without which it cannot speak; `hints` say
    why it does not take a field, or what to send instead. `speaks` is what the text of a request
    is: words to be spoken or the description of a sound.
    """

    title: str
    """The model's published name."""
    default_name: str
    """What requests call it unless the operator names it otherwise."""
    takes: frozenset[Field]
    requires: frozenset[Field] = frozenset()
    hints: Mapping[Field, str] = dataclasses.field(default_factory=dict)
    speaks: Literal["words", "ambient_sound"] = "words"
    max_speakers: int = 1
    languages: tuple[str, ...] = ()
    max_input_chars: int = 8_000
    max_audio_s: float = 600.0
    has_default_voice: bool = False
    """Speaks with the server's default voice where a request names none."""
    holds_dialogues: bool = False
    """Its replies go on from a dialogue, text is fed while it is spoken."""
    normalizers: tuple[Normalizer, ...] = ("released", "off")
    loudness: Literal["keep", "normalise"] = "normalise"
    """What happens to the loudness of a reference."""
    example: Mapping[str, Any] = dataclasses.field(default_factory=lambda: EXAMPLE)
    """A request that it can answer, without the output's format."""

    def language(self, given: str) -> str | None:
        """The trained name of a language, given by name or ISO 639 code; None for `auto`.

        Raises `ValueError` for one the model does not know, with those that it does.
        """
        wanted = given.strip().casefold()
        if wanted in ("", "auto"):
            return None
        name = LANGUAGES.get(wanted, wanted).casefold()
        for known in self.languages:
            if name == known.casefold() or name == known.partition(" (")[0].casefold():
                return known
        raise ValueError(f"{given[:40]!r} is not one of {', '.join(self.languages)}, Auto")
