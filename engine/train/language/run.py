"""Train the language model for so many minutes on the codes of the corpus."""

from __future__ import annotations

import dataclasses
import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding

from engine.models.realtime import RealtimeModel
from engine.models.realtime_prompt import RealtimePrompt
from engine.train.checkpoint import save_checkpoint
from engine.train.journal import Journal
from engine.train.language.dialogues import Dialogues, Lesson
from engine.train.language.helpers import Heads, PhoneticTable
from engine.train.language.shape import new_model
from engine.train.language.spoken import Spoken
from engine.train.memory import keep_freed_memory
from engine.train.objective import code_logits, code_losses, hidden_states
from engine.train.optimizers import Optimizers, fastest_dtype
from engine.train.packing import IGNORE, Batch, pack

log = logging.getLogger(__name__)

POINTER_LAYER = 3
MAX_NORM = 1.0
HELD_OUT = 200
VALIDATE_EVERY_STEPS = 200
VALIDATION_BATCHES = 6


@dataclasses.dataclass(frozen=True, slots=True)
class LanguageRecipe:
    """What a run is; the defaults made the shipped voice."""

    rows: int = 1024
    rate: float = 2e-3
    decay_from: float = 0.5
    first_code_weight: float = 2.0
    token_weight: float = 0.5
    phoneme_weight: float = 0.5
    corrupt_from: float = 0.4  # a model that may not trust its past learns twice as slowly
    corrupt_share: float = 0.3
    seed: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class LessonBatch:
    """A packed batch; `frames` [M] are the grid rows whose hidden state gives a frame."""

    batch: Batch
    frames: Tensor
    phonemes: Tensor  # i64 [M, 4]
    tokens: Tensor  # i64 [M]


def lesson_batches(lessons: Iterator[Lesson], rows: int) -> Iterator[LessonBatch]:
    """Pack lessons, as many as fit into `rows` grid rows."""
    waiting: list[Lesson] = []
    filled = 0
    for lesson in lessons:
        if waiting and filled + len(lesson.tokens) > rows:
            yield _packed(waiting)
            waiting, filled = [], 0
        waiting.append(lesson)
        filled += len(lesson.tokens)


def _packed(lessons: list[Lesson]) -> LessonBatch:
    batch = pack([lesson.example for lesson in lessons])
    frames = (batch.labels[:, 0] != IGNORE).nonzero().flatten()
    phonemes = torch.from_numpy(np.concatenate([lesson.phonemes for lesson in lessons]))
    tokens = torch.from_numpy(np.concatenate([lesson.tokens for lesson in lessons]))
    return LessonBatch(batch, frames, phonemes[frames], tokens[frames])


class LanguageTraining:
    """The model, what helps it to learn, and one step over all of it."""

    def __init__(
        self, recipe: LanguageRecipe, model: RealtimeModel, phonemes: list[list[int]]
    ) -> None:
        self.recipe, self.model = recipe, model
        size = model.config.backbone.hidden_size
        self.text = PhoneticTable(phonemes, size)
        self.heads = Heads(size)
        model.embed_tokens[0].weight.requires_grad_(False)  # the phonetic table stands in for it
        matrices = [
            weight
            for stack in (model.language_model, model.local_transformer.model)
            for weight in stack.layers.parameters()
            if weight.ndim == 2
        ]
        hidden = {id(weight) for weight in matrices}
        others = [
            weight
            for part in (model, self.text, self.heads)
            for weight in part.parameters()
            if weight.requires_grad and id(weight) not in hidden
        ]
        self.optimizers = Optimizers(matrices, others, recipe.rate, recipe.decay_from)

    def losses(self, lesson: LessonBatch, grid: Tensor, dtype: torch.dtype) -> dict[str, Tensor]:
        """All losses of a batch whose past is `grid` (the batch's own or a corrupted one)."""
        batch = lesson.batch
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
            ids, places = grid[:, 0].unique(return_inverse=True)
            table = self.text.rows(ids)
            audio = [
                embedding(column, codes.weight, codes.padding_idx)
                for codes, column in zip(self.model.embed_tokens[1:], grid.T[1:], strict=True)
            ]
            embedded = table[places] + torch.stack(audio).sum(0)
            hidden, middle = hidden_states(self.model, embedded, batch.lengths, tap=POINTER_LAYER)
            hidden, middle = hidden[lesson.frames], middle[lesson.frames]
            labels = batch.labels[lesson.frames]
            codes = code_losses(code_logits(self.model, hidden, labels), labels)
            known = lesson.tokens != IGNORE
            wanted = torch.searchsorted(ids, lesson.tokens.clamp_min(0)).where(known, IGNORE)
            token = self.heads.token_loss(middle, table, wanted)
            phoneme = self.heads.phoneme_loss(hidden, lesson.phonemes)
        ends = labels[:, 0] == self.model.config.audio_eos
        per_book = codes[~ends].mean(0)
        return {"end": codes[ends, 0].mean(), "token": token, "phoneme": phoneme} | {
            f"code{book + 1}": loss for book, loss in enumerate(per_book)
        }

    def step(
        self, lesson: LessonBatch, step: int, share: float, dtype: torch.dtype
    ) -> dict[str, float]:
        """One update; returns the losses."""
        recipe = self.recipe
        grid = lesson.batch.grid
        if share > recipe.corrupt_from:
            grid = self._corrupted(lesson, np.random.default_rng((recipe.seed, step, 1)))
        losses = self.losses(lesson, grid, dtype)
        n_vq = self.model.config.n_vq
        codes = sum(losses[f"code{book + 1}"] for book in range(1, n_vq))
        codes = codes + recipe.first_code_weight * losses["code1"]
        total = codes / (n_vq - 1 + recipe.first_code_weight) + 0.05 * losses["end"]
        total = total + recipe.token_weight * losses["token"]
        total = total + recipe.phoneme_weight * losses["phoneme"]
        total.backward()
        norm = self.optimizers.step(share, MAX_NORM)
        return {name: float(loss.detach()) for name, loss in losses.items()} | {"norm": norm}

    def _corrupted(self, lesson: LessonBatch, draws: np.random.Generator) -> Tensor:
        """The grid with some heard frames lost and others exchanged.

        So the text and the longer past must carry the place, and a wrong code is not the end.
        """
        grid = lesson.batch.grid.clone()
        first_codes = lesson.batch.labels[lesson.frames, 0]
        heard = lesson.frames[first_codes < self.model.config.audio_pad] + 1
        wrong = heard[torch.from_numpy(draws.random(len(heard)) < self.recipe.corrupt_share)]
        wrong = wrong[torch.from_numpy(draws.permutation(len(wrong)))]
        lost, exchanged = wrong.tensor_split(2)
        others = heard[torch.from_numpy(draws.integers(len(heard), size=len(exchanged)))]
        grid[exchanged, 1:] = lesson.batch.grid[others, 1:]
        grid[lost, 1:] = self.model.config.audio_pad
        return grid

    def state_dict(self) -> dict[str, Any]:
        """Everything that a killed run needs to go on."""
        return {
            "model": self.model.state_dict(),
            "text": self.text.state_dict(),
            "heads": self.heads.state_dict(),
            "optimizers": self.optimizers.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state_dict`."""
        self.model.load_state_dict(state["model"])
        self.text.load_state_dict(state["text"])
        self.heads.load_state_dict(state["heads"])
        self.optimizers.load_state_dict(state["optimizers"])

    def save(self, settings: Path, directory: Path) -> None:
        """Write a checkpoint that serves: the text table merged, the heads left out."""
        self.model.embed_tokens[0].weight.data.copy_(self.text.merged())
        save_checkpoint(self.model, directory, source=settings)


def train_language(
    utterances: list[Spoken],
    settings: Path,
    directory: Path,
    minutes: float,
    recipe: LanguageRecipe,
) -> None:
    """Train for `minutes` in all and write `directory/model`; goes on where a run was killed."""
    torch.manual_seed(recipe.seed)
    keep_freed_memory()
    journal = Journal(directory, "language")
    prompt = RealtimePrompt.from_checkpoint(settings)
    phonemes = json.loads((settings / "phonemes.json").read_text(encoding="utf-8"))
    training = LanguageTraining(recipe, new_model(settings), phonemes)
    order = np.random.default_rng(recipe.seed).permutation(len(utterances))
    held_out = [utterances[index] for index in order[:HELD_OUT]]
    learned = [utterances[index] for index in order[HELD_OUT:]]
    step, spent_s = 0, 0.0
    if saved := journal.state():
        training.load_state_dict(saved["training"])
        step, spent_s = saved["step"], saved["spent_s"]
        journal.resume_at(spent_s / (minutes * 60))
    source = lesson_batches(iter(Dialogues(learned, prompt, recipe.seed + step)), recipe.rows)
    dtype = _fastest(training, next(source))
    validation = _validation(held_out, prompt, recipe)
    means: dict[str, float] = {}
    frames, began_s = 0, time.monotonic() - spent_s
    resumed_s = spent_s
    while (spent_s := time.monotonic() - began_s) < minutes * 60:
        share = spent_s / (minutes * 60)
        lesson = next(source)
        figures = training.step(lesson, step, share, dtype)
        for name, value in figures.items():
            means[name] = 0.98 * means.get(name, value) + 0.02 * value
        step += 1
        frames += len(lesson.frames)
        rate = frames * 0.08 / max(1e-9, spent_s - resumed_s)
        journal.progress(share, steps=step, times_real_time=rate, **means)
        if step % VALIDATE_EVERY_STEPS == 0:
            journal.progress(share, always=True, **_validate(training, validation, dtype))
        if journal.save_due():
            journal.save({"training": training.state_dict(), "step": step, "spent_s": spent_s})
            training.save(settings, directory / "model")
    journal.progress(1.0, steps=step, **means, **_validate(training, validation, dtype))
    journal.save({"training": training.state_dict(), "step": step, "spent_s": spent_s})
    training.save(settings, directory / "model")
    journal.plot()


def _fastest(training: LanguageTraining, lesson: LessonBatch) -> torch.dtype:
    def attempt(dtype: torch.dtype) -> None:
        sum(training.losses(lesson, lesson.batch.grid, dtype).values()).backward()

    dtype = fastest_dtype(attempt)
    training.optimizers.forget_gradients()
    log.info("computing in %s", dtype)
    return dtype


def _validation(
    held_out: list[Spoken], prompt: RealtimePrompt, recipe: LanguageRecipe
) -> list[LessonBatch]:
    source = lesson_batches(iter(Dialogues(held_out, prompt, recipe.seed)), recipe.rows)
    return [next(source) for _ in range(VALIDATION_BATCHES)]


@torch.no_grad()
def _validate(
    training: LanguageTraining, lessons: list[LessonBatch], dtype: torch.dtype
) -> dict[str, float]:
    found = [training.losses(lesson, lesson.batch.grid, dtype) for lesson in lessons]
    return {
        f"held_out_{name}": float(np.mean([float(losses[name]) for losses in found]))
        for name in found[0]
    }
