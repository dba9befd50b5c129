"""A corpus on disk: shards of a few hundred utterances, each written whole or not at all.

Shard N is `N.sound.npy` i16 [samples], `N.labels.npy` u8 [samples / 300] and, written last,
`N.jsonl` with one line for each utterance in order: text, speaker, samples, word times.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.train.corpus.teacher import LABEL_SAMPLES, SAMPLE_RATE, Speech

FULL_SCALE = 32767


@dataclasses.dataclass(frozen=True, slots=True)
class Utterance:
    """One spoken sentence of a corpus; arrays are views of the shard's files."""

    text: str
    speaker: str
    sound: NDArray[np.int16]  # [samples], a multiple of 300
    labels: NDArray[np.uint8]  # [samples / 300]
    words: tuple[tuple[float, float], ...] | None

    @property
    def length_s(self) -> float:
        """Seconds of sound."""
        return len(self.sound) / SAMPLE_RATE


def write_shard(directory: Path, index: int, spoken: Iterable[tuple[str, str, Speech]]) -> float:
    """Write (text, speaker, speech) as shard `index`; returns its hours."""
    lines, sounds, labels = [], [], []
    for text, speaker, speech in spoken:
        sounds.append((speech.sound * FULL_SCALE).astype(np.int16))
        labels.append(speech.labels)
        lines.append(
            {
                "text": text,
                "speaker": speaker,
                "samples": len(speech.sound),
                "words": speech.words,
            }
        )
    stem = directory / f"{index:05d}"
    np.save(f"{stem}.sound.npy", np.concatenate(sounds))
    np.save(f"{stem}.labels.npy", np.concatenate(labels))
    partial = stem.with_suffix(".partial")
    partial.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    os.replace(partial, stem.with_suffix(".jsonl"))
    return sum(map(len, sounds)) / SAMPLE_RATE / 3600


def shard_indices(directory: Path) -> list[int]:
    """The shards that are complete, in order."""
    return sorted(int(path.stem) for path in directory.glob("*.jsonl") if path.stem.isdigit())


def read_shard(directory: Path, index: int) -> list[Utterance]:
    """The utterances of one shard, its sound mapped and not read."""
    stem = directory / f"{index:05d}"
    sound = np.load(f"{stem}.sound.npy", mmap_mode="r")
    labels = np.load(f"{stem}.labels.npy")
    utterances, start = [], 0
    for line in stem.with_suffix(".jsonl").read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        end = start + entry["samples"]
        words = entry["words"]
        utterances.append(
            Utterance(
                text=entry["text"],
                speaker=entry["speaker"],
                sound=sound[start:end],
                labels=labels[start // LABEL_SAMPLES : end // LABEL_SAMPLES],
                words=None if words is None else tuple((a, b) for a, b in words),
            )
        )
        start = end
    if start != len(sound):
        raise ValueError(f"{stem}.sound.npy has {len(sound)} samples, its list {start}")
    return utterances


def read_corpus(directory: Path) -> Iterator[Utterance]:
    """All utterances of all complete shards, in order."""
    for index in shard_indices(directory):
        yield from read_shard(directory, index)
