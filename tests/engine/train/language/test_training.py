"""Steps of the language model's training, what it saves, and runs that are killed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from engine.models.realtime import load_realtime
from engine.train.language import run as runs
from engine.train.language.dialogues import Dialogues
from engine.train.language.helpers import PhoneticTable
from engine.train.language.run import (
    LanguageRecipe,
    LanguageTraining,
    LessonBatch,
    lesson_batches,
    train_language,
)
from engine.train.language.shape import new_model
from engine.train.language.vocabulary import MAX_PHONEMES
from tests.engine.train.language.lessons import PROMPT, TINY, UTTERANCES, phonemes

RECIPE = LanguageRecipe(rows=200)
EARLY, LATE = 0.2, 0.7  # before and after the past is corrupted


def training() -> LanguageTraining:
    torch.manual_seed(0)
    return LanguageTraining(RECIPE, new_model(TINY), phonemes())


@pytest.fixture(scope="module")
def batches() -> list[LessonBatch]:
    source = lesson_batches(iter(Dialogues(UTTERANCES, PROMPT, 0)), RECIPE.rows)
    return [next(source) for _ in range(4)]


def test_a_token_is_its_own_row_and_its_phonemes_by_place() -> None:
    torch.manual_seed(1)
    table = PhoneticTable([[5, 9], [9, 5], [], list(range(1, 1 + MAX_PHONEMES))], 8)
    merged = table.merged()
    assert merged.shape == (4, 8)
    for ids in (torch.tensor([2, 0]), torch.tensor([3, 1, 1])):
        torch.testing.assert_close(table.rows(ids), merged[ids], rtol=0, atol=0)
    with torch.no_grad():
        table.own.zero_()
        first = table.from_start.weight[0 * 178 + 5] + table.from_start.weight[1 * 178 + 9]
        last = table.from_end.weight[1 * 178 + 5] + table.from_end.weight[0 * 178 + 9]
    torch.testing.assert_close(table.merged()[0], first + last)
    assert table.merged()[2].count_nonzero() == 0
    assert not torch.allclose(table.merged()[0], table.merged()[1])  # the order counts


def test_a_token_with_phonemes_begins_as_what_they_say() -> None:
    table = PhoneticTable(phonemes(), 8)
    has = torch.tensor([bool(said) for said in phonemes()])
    assert table.own[has].count_nonzero() == 0
    assert table.own[~has].count_nonzero() > 0


@pytest.mark.parametrize("share", [EARLY, LATE])
def test_a_step_changes_all_that_learns(batches: list[LessonBatch], share: float) -> None:
    it = training()
    learns = {name: p for name, p in it.model.named_parameters() if p.requires_grad}
    before = {name: weight.detach().clone() for name, weight in learns.items()}
    figures = it.step(batches[0], 0, share, torch.float32)
    assert all(np.isfinite(value) for value in figures.values()), figures
    assert {"end", "token", "phoneme", "code1", "code16", "norm"} <= figures.keys()
    assert [name for name, old in before.items() if torch.equal(old, learns[name])] == []
    assert "embed_tokens.0.weight" not in learns


def test_the_same_lesson_again_is_better_known(batches: list[LessonBatch]) -> None:
    it = training()
    losses = [it.step(batches[0], number, EARLY, torch.float32) for number in range(40)]
    for name in ("code1", "token", "phoneme", "end"):
        assert losses[-1][name] < 0.9 * losses[0][name], name


def test_a_past_that_is_corrupted_has_the_text_and_other_frames(
    batches: list[LessonBatch],
) -> None:
    it, lesson = training(), batches[0]
    grid = it._corrupted(lesson, np.random.default_rng(0))
    true = lesson.batch.grid
    assert torch.equal(grid[:, 0], true[:, 0])
    changed = (grid != true).any(1).nonzero().flatten()
    heard = lesson.frames[lesson.batch.labels[lesson.frames, 0] < PROMPT.audio_pad] + 1
    assert set(changed.tolist()) <= set(heard.tolist())
    assert 0.2 < len(changed) / len(heard) < 0.4
    lost = (grid[changed, 1:] == PROMPT.audio_pad).all(1)
    assert 0 < lost.sum() < len(changed)


def test_a_run_that_goes_on_equals_one_that_was_never_stopped(
    batches: list[LessonBatch], tmp_path: Path
) -> None:
    whole = training()
    for number in range(2):
        whole.step(batches[number], number, EARLY, torch.float32)
    torch.save(whole.state_dict(), tmp_path / "state.pt")
    resumed = training()
    resumed.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    for number in (2, 3):
        one, other = (
            it.step(batches[number], number, LATE, torch.float32) for it in (whole, resumed)
        )
        assert one == other
    weights, others = whole.model.state_dict(), resumed.model.state_dict()
    assert all(torch.equal(weights[name], others[name]) for name in weights)


def test_what_is_saved_serves_with_the_table_merged(
    batches: list[LessonBatch], tmp_path: Path
) -> None:
    it = training()
    it.step(batches[0], 0, EARLY, torch.float32)
    it.save(TINY, tmp_path / "model")
    served = load_realtime(tmp_path / "model")
    wanted = it.text.merged().bfloat16().float()
    assert torch.equal(served.embed_tokens[0].weight, wanted)
    assert served.state_dict().keys() == load_realtime(TINY).state_dict().keys()


def settings(directory: Path) -> Path:
    shutil.copytree(TINY, directory, ignore=shutil.ignore_patterns("model.safetensors"))
    (directory / "phonemes.json").write_text(json.dumps(phonemes()))
    return directory


@pytest.fixture
def one_step_a_second(monkeypatch):
    """The clock stands still, but for a second a step; held-out lessons and plots are few."""
    clock = {"s": 0.0}
    step = LanguageTraining.step

    def stepped(self, *arguments):
        clock["s"] += 1
        return step(self, *arguments)

    monkeypatch.setattr(LanguageTraining, "step", stepped)
    monkeypatch.setattr(runs.time, "monotonic", lambda: clock["s"])
    monkeypatch.setattr(runs, "HELD_OUT", 12)
    monkeypatch.setattr(runs, "VALIDATION_BATCHES", 1)
    monkeypatch.setattr(runs, "fastest_dtype", lambda attempt: torch.float32)
    monkeypatch.setattr(runs.Journal, "plot", lambda self: None)
    return clock


def test_a_run_leaves_a_model_and_goes_on_until_its_minutes_are_over(
    tmp_path: Path, one_step_a_second
) -> None:
    folder = settings(tmp_path / "settings")
    out = tmp_path / "out"
    train_language(UTTERANCES, folder, out, 3 / 60, RECIPE)
    state = runs.Journal(out, "language").state()
    assert state is not None
    assert (state["step"], state["spent_s"]) == (3, 3.0)
    load_realtime(out / "model")
    train_language(UTTERANCES, folder, out, 5 / 60, RECIPE)
    state = runs.Journal(out, "language").state()
    assert state is not None
    assert (state["step"], state["spent_s"]) == (5, 5.0)
    train_language(UTTERANCES, folder, out, 5 / 60, RECIPE)  # over: nothing more is learned
    assert one_step_a_second["s"] == 5
