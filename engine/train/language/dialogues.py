"""Draws training dialogues: a speaker's reference, a few replies, other people between them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from engine.models.realtime_prompt import RealtimePrompt, Turn
from engine.train.corpus.speakers import SHIPPED
from engine.train.language.spoken import LABELS_PER_FRAME, Spoken
from engine.train.packing import IGNORE, Example, dialogue_example

REFERENCE_FRAMES = (18, 48)
WITHOUT_REFERENCE = 0.1
REPLIES = ((1, 0.55), (2, 0.25), (3, 0.2))
USER_SPEAKS = 0.35
USER_FRAMES = 60


@dataclasses.dataclass(frozen=True, slots=True)
class Lesson:
    """An example and, for its grid rows, what is being said in the frame that follows each.

    `phonemes` i64 [T, 4] and `tokens` i64 [T] (text ids) hold IGNORE where nothing is known.
    """

    example: Example
    phonemes: NDArray[np.int64]
    tokens: NDArray[np.int64]


class Dialogues:
    """Endless lessons from utterances, the same ones for a seed."""

    def __init__(self, utterances: Sequence[Spoken], prompt: RealtimePrompt, seed: int) -> None:
        self._prompt = prompt
        self._draws = np.random.default_rng(seed)
        self._by_speaker: dict[str, list[Spoken]] = {}
        for utterance in utterances:
            self._by_speaker.setdefault(utterance.speaker, []).append(utterance)
        self._speakers = list(self._by_speaker)
        sizes = np.array([len(self._by_speaker[name]) for name in self._speakers], float)
        self._shares = sizes / sizes.sum()

    def __iter__(self) -> Iterator[Lesson]:
        while True:
            yield self._lesson()

    def _lesson(self) -> Lesson:
        draws = self._draws
        speaker = self._speaker()
        # Without a reference the voice is the first shipped one, or the model would have to guess.
        alone = draws.random() < WITHOUT_REFERENCE
        if alone:
            speaker = SHIPPED[0].name
        counts, odds = zip(*REPLIES, strict=True)
        turns, replies = [], []
        for _ in range(draws.choice(counts, p=odds)):
            if draws.random() < USER_SPEAKS:
                turns.append(self._user_turn())
            reply = self._utterance(speaker)
            replies.append(reply)
            turns.append(Turn("assistant", reply.text_ids, reply.codes))
        reference = None if alone else self._reference(speaker)
        example = dialogue_example(self._prompt, turns, reference)
        return self._labelled(example, replies)

    def _speaker(self) -> str:
        return self._speakers[self._draws.choice(len(self._speakers), p=self._shares)]

    def _utterance(self, speaker: str) -> Spoken:
        mine = self._by_speaker[speaker]
        return mine[self._draws.integers(len(mine))]

    def _user_turn(self) -> Turn:
        said = self._utterance(self._speaker())
        if len(said.codes) > USER_FRAMES:
            return Turn("user", said.text_ids, said.codes[:0])
        return Turn("user", said.text_ids, said.codes)

    def _reference(self, speaker: str) -> NDArray[np.uint16]:
        codes = self._utterance(speaker).codes
        wanted = int(self._draws.integers(*REFERENCE_FRAMES))
        start = int(self._draws.integers(max(1, len(codes) - wanted)))
        return codes[start : start + wanted]

    def _labelled(self, example: Example, replies: list[Spoken]) -> Lesson:
        rows = len(example.grid)
        phonemes = np.full((rows, LABELS_PER_FRAME), IGNORE, np.int64)
        tokens = np.full(rows, IGNORE, np.int64)
        frames = np.flatnonzero(
            (example.labels[:, 0] != IGNORE) & (example.labels[:, 0] < self._prompt.audio_pad)
        )
        phonemes[frames] = np.concatenate([reply.phonemes for reply in replies])
        tokens[frames] = np.concatenate([_ids_said(reply) for reply in replies])
        return Lesson(example, phonemes, tokens)


def _ids_said(reply: Spoken) -> NDArray[np.int64]:
    ids = np.array(reply.text_ids, np.int64)[np.maximum(reply.tokens, 0)]
    return np.where(reply.tokens == IGNORE, IGNORE, ids)
