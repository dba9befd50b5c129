"""Where each delay-pattern reply is: in text, in sound, or letting the last frames run out.

A reply alternates between text and stretches of sound. A stretch opens with `audio_start`; every
gen slot begins a frame; the first delay slot, drawn by the model, begins the last one, and n_vq - 1
forced delay slots complete the open ones, codebook by codebook; `audio_end` closes it.

All state is on the device, by slot, so that one batch of tensor operations moves every row on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.models.delay_pattern import DelayFormat, prefix_frames

_FREE = -1  # the text id is drawn, not forced
_IDLE = 1 << 20  # no stretch is running out


@dataclass(frozen=True, slots=True)
class Constraints:
    """What the next grid row of each of N slots may hold."""

    forced: Tensor  # i64 [N]: the text id, or -1 where it is drawn
    banned: Tensor  # bool [N, vocabulary]: text ids that must not be drawn
    active: Tensor  # bool [N, n_vq]: codebooks that are drawn; the others are pad


class DelayState:
    """`rows` i64 [slots, 5]: open codebooks, forced delay slots, in sound, stopped, steps.

    Open codebooks is how many grid rows the stretch has so far: codebook i starts i rows late.
    Steps count from 0 for every row by itself; upstream counts once for a whole batch.
    """

    def __init__(self, slots: int, form: DelayFormat, device: torch.device) -> None:
        self._form = form
        self._rows = torch.zeros(slots, 5, dtype=torch.int64, device=device)
        self._codebooks = torch.arange(form.n_vq, device=device)
        ids = torch.arange(form.text_vocabulary, device=device)

        def which(*tokens: int) -> Tensor:
            return torch.isin(ids, torch.tensor(tokens, device=device))

        self._not_in_sound = ~which(form.gen_slot, form.delay_slot)
        self._not_in_text = which(form.pad, form.gen_slot, form.delay_slot, form.audio_end)
        self._is_delay = which(form.delay_slot)
        self._is_end = which(form.im_end)

    def open(self, slot: int, grid: NDArray[Any]) -> None:
        """A reply to the prompt `grid` [S, 1 + n_vq] begins."""
        form, last = self._form, int(grid[-1, 0])
        in_sound = last in (form.audio_start, form.gen_slot)
        opened = prefix_frames(grid, form) + 1 if in_sound else 0
        self._rows[slot] = torch.tensor([opened, _IDLE, in_sound, 0, 0])

    def constraints(self, slots: Tensor) -> Constraints:
        """What may come next in `slots` i64 [N]."""
        form = self._form
        opened, delayed, in_sound, stopped, step = self._rows[slots].unbind(1)
        forced = torch.full_like(opened, _FREE)
        forced = forced.masked_fill(delayed < form.n_vq, form.delay_slot)
        forced = forced.masked_fill(delayed == form.n_vq, form.audio_end)
        forced = forced.masked_fill(stopped.bool(), form.pad)
        banned = torch.where(in_sound.bool()[:, None], self._not_in_sound, self._not_in_text)
        banned = banned | (step == 0)[:, None] & self._is_delay
        banned = banned | (step <= form.n_vq)[:, None] & self._is_end
        begun = self._codebooks < opened[:, None]
        running = (delayed[:, None] == _IDLE) | (self._codebooks >= delayed[:, None])
        return Constraints(forced, banned, begun & running)

    def advance(self, slots: Tensor, text: Tensor) -> None:
        """The next grid row of `slots` i64 [N] has the ids `text` i64 [N]."""
        form = self._form
        opened, delayed, in_sound, stopped, step = self._rows[slots].unbind(1)
        starts, ends = text == form.audio_start, text == form.audio_end
        delays = text == form.delay_slot
        opened = torch.where(ends, 0, opened + (starts | delays | (text == form.gen_slot)))
        delayed = torch.where((delayed == _IDLE) & delays, 0, delayed)
        delayed = torch.where(delayed == _IDLE, _IDLE, delayed + 1)
        delayed = torch.where(delayed > form.n_vq, _IDLE, delayed)
        in_sound = (in_sound.bool() | starts) & ~ends
        stopped = stopped.bool() | (text == form.im_end)
        rows = torch.stack([opened, delayed, in_sound.long(), stopped.long(), step + 1], dim=1)
        self._rows.index_copy_(0, slots, rows)

    def trace(self, slot: int) -> dict[str, int | None]:
        """The numbers of one slot, for people and tests; `delayed` None when idle."""
        opened, delayed, in_sound, stopped, step = self._rows[slot].tolist()
        return {
            "opened": opened,
            "delayed": None if delayed == _IDLE else delayed,
            "in_sound": in_sound,
            "stopped": stopped,
            "step": step,
        }
