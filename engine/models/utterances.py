"""From a request for speech to the rows that speak it: what all families share. Loads no torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Literal, Protocol

import numpy as np

from engine.api import I32Grid, U16Codes
from engine.models.capabilities import Capabilities, Normalizer
from engine.text.released import as_released


@dataclasses.dataclass(frozen=True, slots=True)
class Reference:
    """A recording to speak like: codes u16 [F, n_vq], and what is said in it where it is known."""

    codes: U16Codes
    transcript: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class PastTurn:
    """A turn of the dialogue so far. Codes u16 [F, n_vq]; None where there was no sound."""

    role: Literal["user", "assistant"]
    text: str
    codes: U16Codes | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SpeechRequest:
    """What a model is asked for; whoever asks has checked it against the model's capabilities.

    `references` are by the number of their speaker, from 1. `language` is a trained name.
    """

    text: str
    frame_ms: float
    references: Mapping[int, Reference] = dataclasses.field(default_factory=dict)
    instructions: str | None = None
    language: str | None = None
    sound_event: str | None = None
    quality: str | None = None
    duration_s: float | None = None
    history: tuple[PastTurn, ...] = ()
    n_vq: int | None = None
    """How many codebooks to speak with; None: all."""
    normalizer: Normalizer = "released"

    def text_for(self, variant: str) -> str:
        """The text as the tokenizer of a model gets it. Raises `ValueError`."""
        if self.normalizer == "off":
            return said(self.text)
        return said(as_released(variant, self.text, wetext=self.normalizer == "wetext"))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Utterance:
    """One row of the engine: what it opens with, and what it is fed.

    `decoder_codes` u16 [F, n_vq] are frames that the codec has to have in its ear.
    """

    grid: I32Grid
    decoder_codes: U16Codes
    text_tokens: int
    fed_ids: tuple[int, ...] = ()
    pause_s: float = 0.0
    """Silence after it."""
    n_vq: int | None = None
    """How many codebooks a frame has; None: all of the model's."""
    max_frames: int | None = None
    """The longest that it may become, if that is less than what the request allows."""


class SpeechModel(Protocol):
    """The torch-free half of a model: what it can do, and its prompts."""

    @property
    def capabilities(self) -> Capabilities:
        """What it can do with a request."""

    @property
    def n_vq(self) -> int:
        """Codebooks of its references and its frames."""

    def utterances(self, request: SpeechRequest) -> list[Utterance]:
        """What to run, one row after the other; at least one.

        Raises `ValueError`, with a message for people, for codes that do not fit the model or a
        text of which nothing is left to say.
        """


def no_codes(n_vq: int) -> U16Codes:
    """Codes u16 [0, n_vq]."""
    return np.empty((0, n_vq), np.uint16)


def said(text: str) -> str:
    """The text, unless nothing is left to say. Raises `ValueError`."""
    if not text.strip():
        raise ValueError("nothing is left to say of the text")
    return text
