"""What MOSS-VoiceGenerator's pipeline makes of a text and of the description of a voice."""

# ruff: noqa: RUF001  (full-width punctuation is what this is about)

from __future__ import annotations

import re
from typing import Final

_ASIDES: Final = re.compile(r"\[[^\]]*\]|\{[^}]*\}")
_PAUSES: Final = re.compile("[【】《》（）『』「」～]")
_PAUSES_OF_DESCRIPTION: Final = re.compile("[【】《》（）『』「」～_-]")
_RUN: Final = re.compile("[，。！？,.?!;；]+(?=[，。！？,.?!;；])")
_HAN: Final = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")


def normalise_text(text: str) -> str:
    """Return the text to speak, without asides in brackets and without quotation marks."""
    text = _PAUSES.sub("，", _ASIDES.sub("", text.replace("\n", " ")))
    return _RUN.sub("", text.replace('"', "")).strip()


def normalise_description(text: str) -> str:
    """Return the description of a voice; in Chinese it gets Chinese commas."""
    text = _PAUSES_OF_DESCRIPTION.sub("，", _ASIDES.sub("", text.replace("\n", " ")))
    if _HAN.search(text):
        text = text.replace(",", "，")
    return _RUN.sub("", text).strip()
