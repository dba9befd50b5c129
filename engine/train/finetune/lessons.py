"""What a run learns from and is judged by: clips split, references drawn, examples packed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from engine.api import U16Codes
from engine.models.realtime_prompt import RealtimePrompt, Turn
from engine.train.finetune.dialogue import CodesOf, reference_of, turns_of
from engine.train.finetune.manifest import Clip
from engine.train.packing import Batch, Example, batches, dialogue_example

REFERENCE_FRAMES = (25, 100)  # 2 to 8 s


@dataclass(frozen=True, slots=True)
class Lesson:
    """A clip with its codes. `as_reference` [frames, n_vq]: what other clips may imitate."""

    clip: Clip
    turns: tuple[Turn, ...]
    as_reference: U16Codes
    named_reference: U16Codes | None


def lesson_of(clip: Clip, prompt: RealtimePrompt, codes_of: CodesOf) -> Lesson:
    """Gather the codes of a clip."""
    return Lesson(
        clip,
        tuple(turns_of(clip, prompt, codes_of)),
        codes_of(clip.audio, "reference"),
        reference_of(clip, codes_of),
    )


def split(lessons: Sequence[Lesson], share: float, seed: int) -> tuple[list[Lesson], list[Lesson]]:
    """Training and validation lessons: about `share` of them for validation, one at least.

    Lessons that have a recording of a reply in common stay together. Raises `ValueError` where
    that leaves nothing to split.
    """
    groups = _sharing_a_reply(lessons)
    if len(groups) < 2:
        raise ValueError("all clips share a recording: none can be kept apart for validation")
    order = np.random.default_rng(seed).permutation(len(groups))
    shuffled = sorted((groups[index] for index in order), key=len)  # stable: small ones first
    validation = shuffled.pop(0)
    while shuffled[1:] and len(validation) + len(shuffled[0]) <= share * len(lessons):
        validation = validation + shuffled.pop(0)
    return [lesson for group in shuffled for lesson in group], validation


def _sharing_a_reply(lessons: Sequence[Lesson]) -> list[list[Lesson]]:
    groups: list[tuple[set[Path], list[Lesson]]] = []
    for lesson in lessons:
        earlier = (turn for turn in lesson.clip.turns if turn.role == "assistant" and turn.audio)
        audio = {lesson.clip.audio, *(turn.audio for turn in earlier if turn.audio)}
        members = [lesson]
        apart = []
        for others_audio, others in groups:
            if audio.isdisjoint(others_audio):
                apart.append((others_audio, others))
            else:
                audio, members = audio | others_audio, others + members
        groups = [*apart, (audio, members)]
    return [members for _, members in groups]


class Course:
    """Batches of every epoch, the same ones for a seed."""

    def __init__(
        self,
        training: Sequence[Lesson],
        validation: Sequence[Lesson],
        prompt: RealtimePrompt,
        rows: int,
        seed: int,
    ) -> None:
        self._training, self._validation = list(training), list(validation)
        self._prompt, self._rows, self._seed = prompt, rows, seed

    def epoch(self, number: int) -> list[Batch]:
        """All training lessons once, in an order and with references of their own."""
        draws = np.random.default_rng((self._seed, number))
        order = [self._training[index] for index in draws.permutation(len(self._training))]
        return self._packed(self._example(lesson, self._drawn(lesson, draws)) for lesson in order)

    def validation(self) -> list[Batch]:
        """All validation lessons, always the same batches."""
        draws = np.random.default_rng(self._seed)
        return self._packed(
            self._example(lesson, self._drawn(lesson, draws)) for lesson in self._validation
        )

    def imitating(self, speaker: str, reference: U16Codes) -> list[Batch]:
        """The validation lessons of a speaker, all of them with one reference."""
        return self._packed(
            self._example(lesson, reference)
            for lesson in self._validation
            if lesson.clip.speaker == speaker
        )

    def _packed(self, examples: Iterable[Example]) -> list[Batch]:
        return list(batches(examples, self._rows))

    def _example(self, lesson: Lesson, reference: U16Codes | None) -> Example:
        return dialogue_example(self._prompt, lesson.turns, reference)

    def _drawn(self, lesson: Lesson, draws: np.random.Generator) -> U16Codes | None:
        """The named reference, else a part of another training clip of the speaker."""
        if lesson.named_reference is not None:
            return lesson.named_reference
        said = {lesson.clip.audio, *(turn.audio for turn in lesson.clip.turns)}
        others = [
            other.as_reference
            for other in self._training
            if other.clip.speaker == lesson.clip.speaker and other.clip.audio not in said
        ]
        if not others:
            return None
        codes = others[draws.integers(len(others))]
        length = int(draws.integers(*REFERENCE_FRAMES))
        start = int(draws.integers(max(1, len(codes) - length + 1)))
        return codes[start : start + length]
