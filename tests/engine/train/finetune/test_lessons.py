"""Clips are split so that validation says something, and drawn the same way for a seed."""

from pathlib import Path

import numpy as np
import pytest

from engine.models.realtime_prompt import RealtimePrompt
from engine.train.finetune.lessons import Course, lesson_of, split
from engine.train.finetune.manifest import Clip, Earlier
from engine.train.packing import IGNORE
from tests.engine.train.finetune.recordings import MODEL, TEXT


@pytest.fixture(scope="module")
def prompt():
    return RealtimePrompt.from_checkpoint(MODEL)


def codes_of(path, use):
    """Ten to nineteen frames, all of them the number in the file's name; references 500 higher."""
    number = int(path.stem)
    return np.full((10 + number % 10, 16), number + 500 * (use == "reference"), np.uint16)


@pytest.fixture
def lessons_of(prompt):
    return lambda *clips: [lesson_of(clip, prompt, codes_of) for clip in clips]


def clip(number, **fields):
    return Clip(number, Path(f"{number}.wav"), TEXT, **fields)


def after(number):
    return Earlier("assistant", TEXT, Path(f"{number}.wav"))


def numbers(lessons):
    return {lesson.clip.line for lesson in lessons}


def test_a_share_of_the_clips_is_for_validation(lessons_of):
    lessons = lessons_of(*map(clip, range(20)))
    training, validation = split(lessons, 0.2, seed=1)
    assert (len(training), len(validation)) == (16, 4)
    assert numbers(training) | numbers(validation) == set(range(20))
    assert numbers(split(lessons, 0.2, seed=1)[1]) == numbers(validation)
    assert numbers(split(lessons, 0.2, seed=2)[1]) != numbers(validation)


def test_there_is_always_one_for_validation(lessons_of):
    training, validation = split(lessons_of(*map(clip, range(5))), 0.01, seed=0)
    assert (len(training), len(validation)) == (4, 1)


@pytest.mark.parametrize("seed", range(5))
def test_a_recording_is_never_on_both_sides(lessons_of, seed):
    dialogue = [clip(0), clip(1, turns=(after(0),)), clip(2, turns=(after(0), after(1)))]
    lessons = lessons_of(*dialogue, *map(clip, range(3, 8)))
    for side in split(lessons, 0.4, seed):
        assert numbers(side) & {0, 1, 2} in (set(), {0, 1, 2})


def test_clips_that_all_share_a_recording_cannot_be_split(lessons_of):
    with pytest.raises(ValueError, match="share a recording"):
        split(lessons_of(clip(0), clip(1, turns=(after(0),))), 0.5, seed=0)


def references(batch):
    """The codes in front of the reply of each packed sequence, all rows being alike."""
    starts = np.cumsum((0, *batch.lengths[:-1]))
    grids = (batch.grid[s : s + n] for s, n in zip(starts, batch.lengths, strict=True))
    return [{int(code) for code in grid[:, 1] if 500 <= code < 1024} for grid in grids]


def replies(batch):
    return [int(code) for code in batch.labels[:, 0].unique() if code != IGNORE and code < 1024]


def test_every_clip_is_learned_once_an_epoch_with_another_one_as_its_reference(lessons_of, prompt):
    lessons = lessons_of(*(clip(n, speaker="ab"[n % 2]) for n in range(8)))
    course = Course(lessons, [], prompt, rows=4096, seed=0)
    for epoch in range(3):
        [batch] = course.epoch(epoch)
        assert replies(batch) == list(range(8))
    [one], [same], [other] = (course.epoch(n) for n in (0, 0, 1))
    assert one.grid.equal(same.grid)
    assert not one.grid.equal(other.grid)
    starts = np.cumsum((0, *one.lengths[:-1]))
    for start, length, reference in zip(starts, one.lengths, references(one), strict=True):
        [code] = reference
        [own] = {int(label) for label in one.labels[start : start + length, 0]} - {IGNORE, 1026}
        assert code - 500 != own
        assert (code - 500) % 2 == own % 2


def test_a_named_reference_is_always_that(lessons_of, prompt):
    [*lessons] = lessons_of(*(clip(n, reference=Path("9.wav")) for n in range(4)))
    [batch] = Course(lessons, [], prompt, rows=4096, seed=0).epoch(0)
    assert references(batch) == [{509}] * 4


def test_a_lonely_clip_has_no_reference(lessons_of, prompt):
    [batch] = Course(lessons_of(clip(3)), [], prompt, rows=4096, seed=0).epoch(0)
    assert references(batch) == [set()]


def test_validation_is_always_the_same(lessons_of, prompt):
    lessons = lessons_of(*map(clip, range(8)))
    course = Course(lessons[2:], lessons[:2], prompt, rows=4096, seed=0)
    [one], [same] = course.validation(), course.validation()
    assert one.grid.equal(same.grid)
    assert replies(one) == [0, 1]
    [imitating] = course.imitating("voice", codes_of(Path("7.wav"), "reference"))
    assert references(imitating) == [{507}] * 2
    assert course.imitating("nobody", codes_of(Path("7.wav"), "reference")) == []
