"""Speak the sentences: shard after shard on all cores; a shard that is there is not made again."""

from __future__ import annotations

import concurrent.futures
import functools
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from engine.train.corpus.sentences import sentences
from engine.train.corpus.shards import shard_indices, write_shard
from engine.train.corpus.speakers import SHIPPED, Speaker, neighbours
from engine.train.corpus.teacher import SAMPLE_RATE, Speech, Teacher
from engine.train.journal import Journal

log = logging.getLogger(__name__)

SENTENCES_PER_SHARD = 500
NEIGHBOURS = 6
SHIPPED_WEIGHT = 9  # a shipped voice speaks as much as nine of its neighbours
SPEED = (0.94, 1.10)
LENGTH_S = (0.3, 12.0)


def cast() -> list[tuple[Speaker, float]]:
    """Every speaker of the corpus and the share of the sentences it speaks."""
    weighted = []
    for seed, speaker in enumerate(SHIPPED):
        weighted.append((speaker, float(SHIPPED_WEIGHT)))
        weighted += [(other, 1.0) for other in neighbours(speaker, NEIGHBOURS, seed)]
    total = sum(weight for _, weight in weighted)
    return [(speaker, weight / total) for speaker, weight in weighted]


def build_corpus(
    directory: Path, hours: float, excluded: frozenset[str], journal: Journal, workers: int = 0
) -> None:
    """Fill `directory` with at least `hours` of speech; goes on where an earlier run stopped.

    `excluded` are texts, normalised, that no training sentence may equal.
    """
    directory.mkdir(parents=True, exist_ok=True)
    made_h = sum(_hours(directory, index) for index in shard_indices(directory))
    next_index = max(shard_indices(directory), default=-1) + 1
    workers = workers or os.cpu_count() or 1
    make = functools.partial(_make_shard, directory, excluded)
    with concurrent.futures.ProcessPoolExecutor(workers) as pool:
        running = set()
        while made_h < hours or running:
            while made_h < hours and len(running) < workers:
                running.add(pool.submit(make, next_index))
                next_index += 1
            done, running = concurrent.futures.wait(
                running, return_when=concurrent.futures.FIRST_COMPLETED
            )
            made_h += sum(future.result() for future in done)
            journal.progress(min(1.0, made_h / hours), made_h=made_h)


def _hours(directory: Path, index: int) -> float:
    sound = np.load(directory / f"{index:05d}.sound.npy", mmap_mode="r")
    return len(sound) / SAMPLE_RATE / 3600


@functools.cache
def _teacher() -> Teacher:
    return Teacher()


def _make_shard(directory: Path, excluded: frozenset[str], index: int) -> float:
    return write_shard(directory, index, _spoken(index, excluded))


def _spoken(index: int, excluded: frozenset[str]) -> Iterator[tuple[str, str, Speech]]:
    draws = np.random.default_rng(index)
    speakers, shares = zip(*cast(), strict=True)
    made = 0
    for number, text in enumerate(sentences(index, excluded)):
        speaker = speakers[draws.choice(len(speakers), p=shares)]
        speed = float(draws.uniform(*SPEED))
        try:
            speech = _teacher().speak(text, speaker, seed=index * 100_000 + number, speed=speed)
        except ValueError:
            log.warning("the teacher has nothing to say to %r", text)
            continue
        if LENGTH_S[0] <= len(speech.sound) / SAMPLE_RATE <= LENGTH_S[1]:
            yield text, speaker.name, speech
            made += 1
        if made == SENTENCES_PER_SHARD:
            return
