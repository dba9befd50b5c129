"""Lessons are dialogues in the training layout, labelled with what is being said."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from engine.train.language.dialogues import Dialogues, Lesson
from engine.train.language.run import lesson_batches
from engine.train.packing import IGNORE
from tests.engine.train.language.lessons import PROMPT, UTTERANCES

BY_CODES = {one.codes.tobytes(): one for one in UTTERANCES}


@pytest.fixture(scope="module")
def lessons() -> list[Lesson]:
    return list(itertools.islice(Dialogues(UTTERANCES, PROMPT, seed=5), 60))


def replies(lesson: Lesson) -> list[np.ndarray]:
    """The grid rows from whose state the frames of each reply come, but for the end."""
    first = lesson.example.labels[:, 0]
    ends = np.flatnonzero(first == PROMPT.audio_eos)
    starts = [0, *(ends[:-1] + 1)]
    return [
        start + np.flatnonzero(first[start:end] != IGNORE)
        for start, end in zip(starts, ends, strict=True)
    ]


def test_each_reply_is_an_utterance_with_its_own_labels(lessons: list[Lesson]) -> None:
    counts = set()
    for lesson in lessons:
        found = replies(lesson)
        counts.add(len(found))
        for rows in found:
            codes = lesson.example.labels[rows]
            said = BY_CODES[codes.astype(np.uint16).tobytes()]
            np.testing.assert_array_equal(lesson.phonemes[rows], said.phonemes)
            known = said.tokens != IGNORE
            np.testing.assert_array_equal(
                lesson.tokens[rows][known], np.array(said.text_ids)[said.tokens[known]]
            )
            assert (lesson.tokens[rows][~known] == IGNORE).all()
    assert counts == {1, 2, 3}


def test_a_frame_is_heard_in_the_row_after_the_one_that_gives_it(lessons: list[Lesson]) -> None:
    for lesson in lessons:
        grid, labels = lesson.example.grid, lesson.example.labels
        for rows in replies(lesson):
            assert (np.diff(rows) == 1).all()
            np.testing.assert_array_equal(grid[rows + 1, 1:], labels[rows])
            assert grid[rows[0], 1] == PROMPT.audio_bos
            assert grid[rows[-1] + 2, 1] == PROMPT.audio_eos


def test_nothing_is_learned_elsewhere(lessons: list[Lesson]) -> None:
    for lesson in lessons:
        learned = np.concatenate(replies(lesson))
        other = np.ones(len(lesson.tokens), bool)
        other[learned] = False
        assert (lesson.phonemes[other] == IGNORE).all()
        assert (lesson.tokens[other] == IGNORE).all()


def test_without_a_reference_the_voice_is_the_first_shipped_one(lessons: list[Lesson]) -> None:
    start = len(PROMPT.system_ids)
    alone = 0
    for lesson in lessons:
        has_reference = tuple(lesson.example.grid[start:, 0][:3]) == PROMPT.voice_head_ids[:3]
        speakers = {
            BY_CODES[lesson.example.labels[rows].astype(np.uint16).tobytes()].speaker
            for rows in replies(lesson)
        }
        assert len(speakers) == 1
        if not has_reference:
            alone += 1
            assert speakers == {"heart"}
    assert 0 < alone < len(lessons) / 2


def test_a_seed_repeats_its_lessons() -> None:
    def drawn(seed: int) -> bytes:
        lessons = itertools.islice(Dialogues(UTTERANCES, PROMPT, seed), 5)
        return b"".join(lesson.example.grid.tobytes() for lesson in lessons)

    assert drawn(1) == drawn(1) != drawn(2)


def test_batches_hold_whole_lessons_and_no_padding(lessons: list[Lesson]) -> None:
    rows = 300
    made = list(lesson_batches(iter(lessons), rows))
    assert len(made) > 3
    at = 0
    for one in made:
        batch = one.batch
        assert sum(batch.lengths) == len(batch.grid) <= max(rows, *batch.lengths)
        mine, at = lessons[at : at + len(batch.lengths)], at + len(batch.lengths)
        np.testing.assert_array_equal(
            batch.grid.numpy(), np.concatenate([lesson.example.grid for lesson in mine])
        )
        labels = np.concatenate([lesson.example.labels for lesson in mine])
        assert torch.equal(one.frames, torch.from_numpy(labels[:, 0] != IGNORE).nonzero()[:, 0])
        phonemes = np.concatenate([lesson.phonemes for lesson in mine])
        np.testing.assert_array_equal(one.phonemes.numpy(), phonemes[one.frames.numpy()])
        tokens = np.concatenate([lesson.tokens for lesson in mine])
        np.testing.assert_array_equal(one.tokens.numpy(), tokens[one.frames.numpy()])
