"""What the tests of MOSS-TTS-Local-Transformer and MOSS-TTS-Nano share."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

from engine.api import Open, Sampling
from engine.models.global_local import GlobalLocalModel
from engine.models.global_local_runner import GlobalLocalRunner
from engine.models.local import load_local
from engine.models.nano import load_nano
from engine.row import Row
from engine.segments import TextLayout
from kernels.attention import attend_sequence

VECTORS = Path(__file__).parents[2] / "vectors"
DIRECTORIES = {
    "local": VECTORS / "local_nano" / "local_v15",
    "nano": VECTORS / "local_nano" / "nano",
}
LOADERS = {"local": load_local, "nano": load_nano}
GREEDY = Sampling(temperature=0.0, top_p=1.0, top_k=0, repetition_penalty=1.0, repetition_window=0)


@dataclass(frozen=True)
class Family:
    """A tiny checkpoint and its golden vectors."""

    name: str
    model: GlobalLocalModel

    @property
    def directory(self) -> Path:
        return DIRECTORIES[self.name]

    def vectors(self, name: str) -> dict[str, torch.Tensor]:
        return load_file(self.directory / f"{name}.safetensors")

    def info(self) -> dict:
        return json.loads((self.directory / "info.json").read_text())

    def prompt(self, case: str) -> np.ndarray:
        return self.vectors("prompts")[f"{case}.input_ids"].numpy().astype(np.int32)

    def runner(self, slots: int = 3, *, deterministic: bool = False) -> GlobalLocalRunner:
        return GlobalLocalRunner(self.model, slots, 192, deterministic=deterministic)

    def layout(self) -> TextLayout:
        config = self.model.config
        return TextLayout(
            prefill_ids=1,
            pad_id=config.continue_id,
            audio_pad=config.audio_pad,
            audio_bos=config.audio_pad,
            audio_eos=config.audio_pad,
            columns=1 + config.n_vq,
            text_vocabulary=config.text_vocabulary,
            audio_vocabulary=config.codebook_size + 1,
        )

    def row(self, slot: int, grid: np.ndarray, sampling: Sampling = GREEDY, seed: int = 0) -> Row:
        codes = np.zeros((0, self.model.config.n_vq), np.uint16)
        opened = Open(slot, "tiny", grid, codes, codes, seed, sampling, "live", 0, 10**9, 1000)
        row = Row(opened, self.layout())
        row.slot = slot
        return row


def family(name: str) -> Family:
    return Family(name, LOADERS[name](DIRECTORIES[name] / "tiny"))


def start(runner: GlobalLocalRunner, row: Row, n_vq: int | None = None) -> None:
    runner.open(row.slot, row.opened.sampling, row.opened.seed, n_vq)
    runner.prefill(row.slot, 0, row.opened.grid)
    row.advance(row.opened.grid)


def speak(runner: GlobalLocalRunner, rows: list[Row], frames: int) -> list[np.ndarray]:
    """Draw up to `frames` frames of each row together; a row that stops leaves the batch."""
    spoken = {row.id: [] for row in rows}
    live = list(rows)
    for _ in range(frames):
        stepping = [row for row in live if row.frames]
        if stepping:
            runner.step(stepping)
        for row, codes in zip(list(live), runner.draw(live), strict=True):
            if (codes == runner.audio_pad).all():
                live.remove(row)
                continue
            row.codes = codes
            row.frames += 1
            spoken[row.id].append(codes)
        if not live:
            break
    return [np.array(spoken[row.id]).reshape(-1, runner.columns - 1) for row in rows]


class WholeSequence:
    """A cache that keeps every layer's keys and values of one sequence by concatenation."""

    def __init__(self) -> None:
        self.kept: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def __call__(self, layer, q, k, v):
        if layer in self.kept:
            old_k, old_v = self.kept[layer]
            k, v = torch.cat([old_k, k]), torch.cat([old_v, v])
        self.kept[layer] = (k, v)
        new, length = q.shape[0], k.shape[0]
        visible = torch.ones(new, length).tril(length - new).bool()
        bias = torch.zeros(new, length).masked_fill(~visible, float("-inf"))
        return attend_sequence(q, k.transpose(0, 1), v.transpose(0, 1), bias)


def hidden_states(model: GlobalLocalModel, grid: torch.Tensor) -> torch.Tensor:
    """Final-normed backbone states [T, hidden] of grid rows [T, 1 + n_vq]."""
    rotation = model.config.backbone.rotations(len(grid), like=model.text_embedding.weight)
    return model.backbone(grid, rotation, WholeSequence())
