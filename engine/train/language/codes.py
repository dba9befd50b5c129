"""The corpus as codes: what the language model learns to speak."""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from engine.codec.codec import AudioCodec, load_codec
from engine.train.corpus.shards import FULL_SCALE, Utterance, read_shard, shard_indices
from engine.train.journal import Journal

log = logging.getLogger(__name__)

CLIPS_PER_CALL = 16


@dataclasses.dataclass(frozen=True, slots=True)
class Coded:
    """An utterance and its codes u16 [frames, codebooks]."""

    utterance: Utterance
    codes: NDArray[np.uint16]


def encode_corpus(corpus: Path, codec_dir: Path, directory: Path, journal: Journal) -> None:
    """Encode each shard into `directory`; a shard that is there is not encoded again."""
    directory.mkdir(parents=True, exist_ok=True)
    codec = load_codec(codec_dir)
    indices = shard_indices(corpus)
    for done, index in enumerate(indices):
        path = directory / f"{index:05d}.npy"
        if not path.is_file():
            codes = encode(codec, [utterance.sound for utterance in read_shard(corpus, index)])
            partial = path.with_suffix(".partial")
            with partial.open("wb") as file:
                np.save(file, np.concatenate(codes))
            os.replace(partial, path)
        journal.progress((done + 1) / len(indices), shards=done + 1)


def encode(codec: AudioCodec, sounds: list[NDArray[np.int16]]) -> list[NDArray[np.uint16]]:
    """Codes u16 [frames, codebooks] of each sound i16 [samples], whose tail is kept."""
    per_frame = codec.config.samples_per_frame
    found: dict[int, NDArray[np.uint16]] = {}
    by_length = sorted(range(len(sounds)), key=lambda index: len(sounds[index]))
    for start in range(0, len(sounds), CLIPS_PER_CALL):
        group = by_length[start : start + CLIPS_PER_CALL]
        frames = [-(-len(sounds[index]) // per_frame) for index in group]
        wav = torch.zeros(len(group), 1, max(frames) * per_frame)
        for row, index in zip(wav, group, strict=True):
            clip = sounds[index].astype(np.float32) / FULL_SCALE
            row[0, : len(clip)] = torch.from_numpy(clip)
        codes, _ = codec.encode(wav, torch.tensor(frames) * per_frame)
        for row, index, count in zip(codes.unbind(1), group, frames, strict=True):
            found[index] = row[:, :count].T.numpy().astype(np.uint16)
    return [found[index] for index in range(len(sounds))]


def read_codes(corpus: Path, directory: Path, codebooks: int) -> Iterator[Coded]:
    """Every utterance that has been encoded, with its first `codebooks` codes."""
    for index in shard_indices(corpus):
        path = directory / f"{index:05d}.npy"
        if not path.is_file():
            continue
        codes, start = np.load(path), 0
        for utterance in read_shard(corpus, index):
            end = start + -(-len(utterance.sound) // SAMPLES_PER_FRAME)
            yield Coded(utterance, codes[start:end, :codebooks])
            start = end
        if start != len(codes):
            raise ValueError(f"{path} has {len(codes)} frames, its shard {start}: encode it again")


SAMPLES_PER_FRAME = 1920
