"""Dialogues as training examples, and examples packed into batches without padding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.models.realtime_prompt import RealtimePrompt, Turn

IGNORE = -100


@dataclass(frozen=True, slots=True)
class Example:
    """One dialogue: `labels[t]` are the codes that the hidden state of grid row t must give.

    `grid` i32 [T, 1 + n_vq], `labels` i32 [T, n_vq] with `IGNORE` where nothing is to be learned.
    """

    grid: NDArray[np.int32]
    labels: NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Batch:
    """Sequences one after the other: `grid` i64 [N, 1 + n_vq], `labels` i64 [N, n_vq].

    `lengths` are the grid rows of each sequence and sum to N.
    """

    grid: Tensor
    lengths: tuple[int, ...]
    labels: Tensor

    def to(self, device: str | torch.device) -> Batch:
        return Batch(self.grid.to(device), self.lengths, self.labels.to(device))


def dialogue_example(
    prompt: RealtimePrompt, turns: Sequence[Turn], voice_codes: NDArray[Any] | None = None
) -> Example:
    """The training layout of a dialogue, with the loss on its assistant turns only.

    The last frame of an assistant turn gives the end-of-audio code in codebook 0 and nothing else.
    What follows the last assistant turn with sound is dropped. Raises `ValueError` for a dialogue
    without one, and for codes or ids that do not fit the model.
    """
    spoken = [i for i, turn in enumerate(turns) if turn.role == "assistant" and len(turn.codes)]
    if not spoken:
        raise ValueError("the dialogue has no assistant turn with sound: nothing to learn from")
    last = turns[spoken[-1]]
    context = prompt.dialogue(turns[: spoken[-1]], voice_codes)
    grid = np.concatenate([context, prompt.assistant_turn(last.text_ids, last.codes)])
    labels = np.full((len(grid), prompt.n_vq), IGNORE, np.int32)
    for index in spoken:
        turn = turns[index]
        start = len(prompt.dialogue(turns[:index], voice_codes)) - 1
        start += min(len(turn.text_ids), prompt.prefill_text_len)
        labels[start : start + len(turn.codes)] = turn.codes
        labels[start + len(turn.codes), 0] = prompt.audio_eos
    return Example(grid, labels)


def pack(examples: Sequence[Example]) -> Batch:
    """Lay examples one after the other."""
    return Batch(
        torch.from_numpy(np.concatenate([example.grid for example in examples])).long(),
        tuple(len(example.grid) for example in examples),
        torch.from_numpy(np.concatenate([example.labels for example in examples])).long(),
    )


def batches(examples: Iterable[Example], rows: int) -> Iterator[Batch]:
    """Pack examples in their order, as many into each batch as fit into `rows` grid rows.

    An example longer than `rows` makes a batch of its own.
    """
    waiting: list[Example] = []
    filled = 0
    for example in examples:
        if waiting and filled + len(example.grid) > rows:
            yield pack(waiting)
            waiting, filled = [], 0
        waiting.append(example)
        filled += len(example.grid)
    if waiting:
        yield pack(waiting)
