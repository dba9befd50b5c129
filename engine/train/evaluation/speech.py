"""Spoken texts: what is measured, whoever spoke it; and the teacher's own speech, the ceiling."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import soxr
from numpy.typing import NDArray

from engine.train.corpus.speakers import SHIPPED, Speaker
from engine.train.corpus.teacher import SAMPLE_RATE, Teacher

F32 = NDArray[np.float32]

TEACHER_VOICES: Mapping[str, Speaker] = {speaker.name: speaker for speaker in SHIPPED}


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """A text and the voice that is to speak it."""

    text: str
    voice: str


@dataclasses.dataclass(frozen=True, slots=True)
class Said:
    """A line and its sound."""

    line: Line
    sound: F32  # [samples]
    rate_hz: int
    ended: bool = True  # by itself, not because it was cut

    @property
    def length_s(self) -> float:
        """Seconds of sound."""
        return len(self.sound) / self.rate_hz


def cast(texts: Sequence[str], voices: Sequence[str]) -> list[Line]:
    """Give each text to the next voice in turn."""
    return [Line(text, voices[number % len(voices)]) for number, text in enumerate(texts)]


def teacher_speech(lines: Sequence[Line]) -> list[Said]:
    """Speak the lines as the teacher does.

    A voice that the teacher does not have is spoken by its own one: then only the words and the
    lengths can be compared.
    """
    teacher = Teacher()
    said = []
    for seed, line in enumerate(lines):
        speaker = TEACHER_VOICES.get(line.voice, SHIPPED[0])
        speech = teacher.speak(line.text, speaker, seed=seed)
        said.append(Said(line, speech.sound, SAMPLE_RATE))
    return said


def at_rate(said: Said, rate_hz: int) -> F32:
    """Return the sound at another rate, f32 [samples]."""
    if said.rate_hz == rate_hz:
        return said.sound
    resampled: F32 = soxr.resample(said.sound, said.rate_hz, rate_hz)
    return resampled


def pooled(said: Sequence[Said], voice: str, rate_hz: int) -> F32:
    """Return all sound of one voice, f32 [samples]."""
    sounds = [at_rate(one, rate_hz) for one in said if one.line.voice == voice]
    return np.concatenate(sounds) if sounds else np.zeros(0, np.float32)
