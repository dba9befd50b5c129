"""Utterances as the language model learns them, with what is being said in every frame."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

from engine.train.corpus.teacher import LABEL_SAMPLES, SAMPLE_RATE
from engine.train.language.codes import SAMPLES_PER_FRAME, Coded
from engine.train.packing import IGNORE

LABELS_PER_FRAME = 4
FRAME_S = SAMPLES_PER_FRAME / SAMPLE_RATE
LOOKS_AT = 0.6  # of a frame: the moment whose token counts as the frame's


@dataclasses.dataclass(frozen=True, slots=True)
class Spoken:
    """One utterance: F frames."""

    speaker: str
    text_ids: tuple[int, ...]
    codes: NDArray[np.uint16]  # [F, n_vq]
    phonemes: NDArray[np.int16]  # [F, 4]: one each 20 ms
    tokens: NDArray[np.int32]  # [F]: index of the token being said, IGNORE where not known


def spoken(
    coded: Iterable[Coded], tokenizer: Tokenizer, excluded: frozenset[str] = frozenset()
) -> Iterator[Spoken]:
    """Prepare utterances, but for those whose normalised text is in `excluded`."""
    from engine.train.corpus.sentences import normalised

    for item in coded:
        utterance = item.utterance
        if normalised(utterance.text) in excluded:
            continue
        encoding = tokenizer.encode(utterance.text, add_special_tokens=False)
        frames = len(item.codes)
        yield Spoken(
            speaker=utterance.speaker,
            text_ids=tuple(encoding.ids),
            codes=item.codes,
            phonemes=frame_phonemes(utterance.labels, frames),
            tokens=_tokens_said(encoding, utterance.text, utterance.words, frames),
        )


def frame_phonemes(labels: NDArray[np.uint8], frames: int) -> NDArray[np.int16]:
    """What is said in each quarter of `frames` frames, i16 [F, 4], by `labels` each 12.5 ms."""
    quarter = SAMPLES_PER_FRAME // LABELS_PER_FRAME
    middles = np.arange(quarter // 2, frames * SAMPLES_PER_FRAME, quarter) // LABEL_SAMPLES
    padded = np.pad(labels, (0, max(0, middles[-1] + 1 - len(labels))))
    return padded[middles].reshape(frames, LABELS_PER_FRAME).astype(np.int16)


def _tokens_said(
    encoding: Encoding, text: str, words: tuple[tuple[float, float], ...] | None, frames: int
) -> NDArray[np.int32]:
    """Which token is being said in each frame, by the exact times of the words."""
    if words is None:
        return np.full(frames, IGNORE, np.int32)
    starts_s = np.array([_start_s(text, words, *span) for span in encoding.offsets])
    moments_s = (np.arange(frames) + LOOKS_AT) * FRAME_S
    said = np.searchsorted(np.maximum.accumulate(starts_s), moments_s, side="right") - 1
    return np.clip(said, 0, len(encoding.ids) - 1).astype(np.int32)


def _start_s(text: str, words: tuple[tuple[float, float], ...], start: int, end: int) -> float:
    """When the characters `start`..`end` begin to be said, linear within their word."""
    while start < end - 1 and text[start].isspace():
        start += 1
    word = len(text[: start + 1].split()) - 1
    word_start = start - len(text[: start + 1].split()[-1]) + 1 if word >= 0 else 0
    length = max(1, len(text[word_start:].split()[0]))
    begun_s, ended_s = words[min(max(word, 0), len(words) - 1)]
    return begun_s + (start - word_start) / length * (ended_s - begun_s)
