"""A clip as the turns that the model knows, whoever makes the codes of its recordings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from engine.api import U16Codes
from engine.models.realtime_prompt import RealtimePrompt, Turn
from engine.train.finetune.manifest import Clip
from engine.train.finetune.sound import SoundError, Use

CodesOf = Callable[[Path, Use], U16Codes]
"""(recording, what it is used as) -> codes [frames, n_vq]; raises `SoundError`."""


def turns_of(clip: Clip, prompt: RealtimePrompt, codes_of: CodesOf) -> list[Turn]:
    """The earlier turns of a clip and its own, the last. Raises `SoundError`."""
    turns = []
    for place, earlier in enumerate(clip.turns, start=1):
        codes = np.zeros((0, prompt.n_vq), np.uint16)
        if earlier.audio is not None:
            with _of(f"earlier turn {place}"):
                codes = codes_of(earlier.audio, "reply" if earlier.role == "assistant" else "user")
        turns.append(Turn(earlier.role, tuple(prompt.tokenizer.encode(earlier.text)), codes))
    codes = codes_of(clip.audio, "reply")
    return [*turns, Turn("assistant", tuple(prompt.tokenizer.encode(clip.text)), codes)]


def reference_of(clip: Clip, codes_of: CodesOf) -> U16Codes | None:
    """The reference that a clip names, if it does. Raises `SoundError`."""
    if clip.reference is None:
        return None
    with _of("its reference"):
        return codes_of(clip.reference, "reference")


@contextmanager
def _of(what: str) -> Iterator[None]:
    """Say in an error which of a clip's recordings it is about."""
    try:
        yield
    except SoundError as error:
        raise SoundError(f"{what}: {error}") from error
