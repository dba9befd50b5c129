"""The run: epochs over the training clips, the best weights by validation loss kept."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from engine.train.checkpoint import save_weights, trainable
from engine.train.finetune.learner import Learner, recompute_layers
from engine.train.finetune.lessons import Course
from engine.train.finetune.lora import add_adapters, plain_weights
from engine.train.journal import Journal
from engine.train.optimizers import fastest_dtype
from engine.train.packing import Batch

log = logging.getLogger(__name__)

MOST_UPDATES_UNVALIDATED = 500


@dataclasses.dataclass(frozen=True, slots=True)
class Recipe:
    """What a run is. A run with other numbers needs another folder.

    `rows` are grid rows in a batch, `accumulate` batches in an update, `patience` the validations
    without a better one that end the run; `lora` is a rank, None: all weights are trained.
    """

    rate: float
    epochs: int = 20
    rows: int = 1024
    accumulate: int = 1
    patience: int = 5
    lora: int | None = None
    recompute: bool = False
    validation_share: float = 0.1
    seed: int = 0


@dataclasses.dataclass(slots=True)
class Place:
    """How far a run is: `updates` of `epoch` are done."""

    epoch: int = 0
    updates: int = 0
    start_loss: float = math.nan
    best_loss: float = math.inf
    validations_since_best: int = 0
    finished: bool = False

    @property
    def improved(self) -> bool:
        """Whether any weights were better than those of the start."""
        return self.best_loss < self.start_loss


class OtherRun(ValueError):
    """The folder holds a run with other settings or data."""


class Run:
    """One fine-tuning run in `out`: `model/` the best checkpoint, `state.pt` where to go on."""

    def __init__(
        self,
        model_dir: Path,
        out: Path,
        course: Course,
        recipe: Recipe,
        origin: str,
        device: str,
        dtype: torch.dtype | None,
    ) -> None:
        """`origin` tells runs on other data apart; `dtype` None: whichever is faster here."""
        self._model_dir, self._out, self._course, self._recipe = model_dir, out, course, recipe
        self._origin = {"recipe": dataclasses.asdict(recipe), "origin": origin}
        self._journal = Journal(out, "finetune")
        saved = self._journal.state()
        if saved and saved["run"] != self._origin:
            raise OtherRun(f"{out} holds a run with other settings or data; name another --out")
        self._learner = self._new_learner(device, dtype)
        self._validation = course.validation()
        self.place = Place()
        if saved:
            self._learner.load_state_dict(saved["learner"])
            self.place = Place(**saved["place"])
            going_on = f"going on in epoch {self.place.epoch + 1}"
            log.info("finished before" if self.place.finished else going_on)

    def train(self) -> Place:
        """Train until the last epoch, or until validation gets no better."""
        place, epochs = self.place, self._recipe.epochs
        self._journal.resume_at(place.epoch / epochs)
        if math.isnan(place.start_loss):
            place.start_loss = self._learner.loss(self._validation)
            log.info("validation loss at the start %.4f", place.start_loss)
        try:
            while not place.finished:
                self._epoch()
                place.epoch, place.updates = place.epoch + 1, 0
                place.finished = place.finished or place.epoch == epochs
        except KeyboardInterrupt:
            self._save()
            raise
        self._save()
        return place

    def _epoch(self) -> None:
        place = self.place
        updates = _groups(self._course.epoch(place.epoch), self._recipe.accumulate)
        for group in updates[place.updates :]:
            share = (place.epoch + (place.updates + 1) / len(updates)) / self._recipe.epochs
            loss, norm = self._learner.update(group, share)
            place.updates += 1
            self._journal.progress(share, loss=float(loss), norm=float(norm))
            last = place.updates == len(updates)
            if last or place.updates % MOST_UPDATES_UNVALIDATED == 0:
                self._validate(share)
                if place.finished:
                    return
            if self._journal.save_due():
                self._save()

    def _validate(self, share: float) -> None:
        place, loss = self.place, self._learner.loss(self._validation)
        log.info("epoch %d: validation loss %.4f", place.epoch + 1, loss)
        self._journal.record(share=share, validation=loss)
        place.validations_since_best += 1
        if loss < min(place.best_loss, place.start_loss):
            place.best_loss, place.validations_since_best = loss, 0
            save_weights(
                plain_weights(self._learner.model), self._out / "model", source=self._model_dir
            )
        if place.validations_since_best >= self._recipe.patience:
            log.info("no better validation loss in %d validations: done", self._recipe.patience)
            place.finished = True

    def _save(self) -> None:
        place = dataclasses.asdict(self.place)
        learner = self._learner.state_dict()
        self._journal.save({"run": self._origin, "place": place, "learner": learner})

    def _new_learner(self, device: str, dtype: torch.dtype | None) -> Learner:
        recipe = self._recipe
        # Frozen weights need no more than bfloat16; those that are trained would lose small steps.
        frozen = recipe.lora is not None and device != "cpu"
        stored = torch.bfloat16 if frozen else torch.float32
        model = trainable(self._model_dir, device=device, dtype=stored)
        if recipe.lora is not None:
            add_adapters(model, recipe.lora)
        if recipe.recompute:
            recompute_layers(model)
        learner = Learner(model, recipe.rate, dtype or torch.float32)
        if dtype is None:
            learner.dtype = _measured(learner, self._course.epoch(0)[0])
        count = sum(p.numel() for p in model.parameters() if p.requires_grad)
        log.info("%.1f M parameters to train on %s in %s", count / 1e6, device, learner.dtype)
        return learner


def _measured(learner: Learner, batch: Batch) -> torch.dtype:
    """The dtype in which a step is faster."""

    def step(dtype: torch.dtype) -> None:
        learner.dtype = dtype
        float(learner.gradients(batch, 1))
        learner.forget_gradients()

    return fastest_dtype(step)


def _groups(batches: Sequence[Batch], size: int) -> list[Sequence[Batch]]:
    return [batches[start : start + size] for start in range(0, len(batches), size)]


def describe(place: Place) -> dict[str, Any]:
    """The figures of a run that is over."""
    return {
        "validation_loss_at_start": place.start_loss,
        "validation_loss": min(place.best_loss, place.start_loss),
        "epochs": place.epoch,
    }
