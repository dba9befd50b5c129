"""The delay pattern: codebook i of a frame stands i grid rows below codebook 0. Numpy only.

`delay` and `undelay` are the two directions on whole arrays. `Undelay` is the second one as rows
come in: it gives a frame with the very row that completes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.hub import CheckpointError

Codes = NDArray[np.int64]

_DEFAULT_IDS = {
    "pad_token_id": 151643,
    "im_start_token_id": 151644,
    "im_end_token_id": 151645,
    "audio_start_token_id": 151652,
    "audio_end_token_id": 151653,
    "audio_user_slot_token_id": 151654,
    "audio_assistant_gen_slot_token_id": 151656,
    "audio_assistant_delay_slot_token_id": 151662,
}


@dataclass(frozen=True, slots=True)
class DelayFormat:
    """Sizes and control ids of a grid [S, 1 + n_vq], read from the checkpoint's `config.json`."""

    n_vq: int
    audio_pad: int  # also the number of codes in a codebook
    text_vocabulary: int
    pad: int
    im_start: int
    im_end: int
    audio_start: int
    audio_end: int
    user_slot: int  # text column of the audio rows of a user turn
    gen_slot: int  # of an assistant turn, while frames begin
    delay_slot: int  # of an assistant turn, after the last frame has begun

    @classmethod
    def from_json(cls, config: dict[str, Any]) -> DelayFormat:
        """Ids that are absent have the released values. Raises `CheckpointError`."""
        needed = ("n_vq", "audio_vocab_size", "language_config")
        absent = [name for name in needed if name not in config]
        if absent:
            raise CheckpointError(f"config.json lacks {', '.join(absent)}")
        size, pad = config["audio_vocab_size"], config.get("audio_pad_code")
        if pad not in (None, size):
            raise CheckpointError(
                f"audio_pad_code is {pad}, but the codes are 0..{size - 1}: it must be {size}"
            )
        if config["n_vq"] < 2:
            raise CheckpointError(f"n_vq is {config['n_vq']}; the delay pattern needs at least 2")
        text_vocabulary = config["language_config"]["vocab_size"]
        ids = {name: config.get(name, default) for name, default in _DEFAULT_IDS.items()}
        for name, token_id in ids.items():
            if not 0 <= token_id < text_vocabulary:
                raise CheckpointError(
                    f"{name} {token_id} is outside the vocabulary of {text_vocabulary}"
                )
        return cls(config["n_vq"], size, text_vocabulary, *ids.values())

    @property
    def columns(self) -> int:
        """Width of a grid."""
        return 1 + self.n_vq


def delay(codes: NDArray[Any], pad: int) -> Codes:
    """Frames [T, n] to grid rows [T + n - 1, n]: out[r, i] = codes[r - i, i], else `pad`."""
    frames, n_vq = codes.shape
    rows = np.full((frames + n_vq - 1, n_vq), pad, np.int64)
    for codebook in range(n_vq):
        rows[codebook : codebook + frames, codebook] = codes[:, codebook]
    return rows


def undelay(rows: NDArray[Any]) -> Codes:
    """Grid rows [L, n] to frames [L - n + 1, n]: out[t, i] = rows[t + i, i]; none if L < n."""
    n_vq = rows.shape[1]
    frames = max(0, len(rows) - n_vq + 1)
    columns = [rows[codebook : codebook + frames, codebook] for codebook in range(n_vq)]
    return np.stack(columns, axis=1).astype(np.int64)


def segments(rows: NDArray[Any], pad: int) -> list[Codes]:
    """Frames of each stretch of sound in the code columns [L, n] of a reply.

    Undelayed rows without any code separate the stretches.
    """
    frames = undelay(rows)
    sounds = np.concatenate([[False], (frames != pad).any(axis=1), [False]])
    borders = np.flatnonzero(sounds[1:] != sounds[:-1])
    pairs = zip(borders[::2], borders[1::2], strict=True)
    return [frames[start:stop] for start, stop in pairs]


def reply_start(grid: NDArray[Any], form: DelayFormat) -> int:
    """Where the reply begins in a prompt [S, 1 + n_vq]: after the last assistant header."""
    headers = np.flatnonzero(grid[:, 0] == form.im_start)
    return int(headers[-1]) + 3  # the marker, "assistant", a line break


def prefix_frames(grid: NDArray[Any], form: DelayFormat) -> int:
    """Frames of the reply that the prompt already holds: 0, or those to be continued.

    Upstream counts the audio_start row too, and so cuts the first new frame from the sound.
    """
    if grid[-1, 0] != form.gen_slot:
        return 0
    starts = np.flatnonzero(grid[:, 0] == form.audio_start)
    return len(grid) - 1 - int(starts[-1]) if len(starts) else 0


def prompt_problem(grid: NDArray[Any], form: DelayFormat) -> str | None:
    """Why no reply can follow a grid [S, 1 + n_vq], if none can."""
    if not (grid[:, 0] == form.im_start).any():
        return f"the prompt has no assistant header (id {form.im_start})"
    if grid[-1, 0] == form.delay_slot:
        return "the prompt ends inside the last frames of a sound; cut it before its delay rows"
    return None


class Undelay:
    """Undelays the rows of many slots as they come: `push` takes one row of each of some slots.

    A slot's first rows are those of the prompt that belong to the reply; see `open`.
    """

    def __init__(self, slots: int, form: DelayFormat) -> None:
        n_vq = form.n_vq
        self._form = form
        self._ring = np.full((slots, n_vq, n_vq), form.audio_pad, np.int64)
        self._rows = np.zeros(slots, np.int64)
        self._skip = np.zeros(slots, np.int64)
        self._codebooks = np.arange(n_vq)

    def open(self, slot: int, grid: NDArray[Any]) -> None:
        """A reply to `grid` [S, 1 + n_vq] begins; frames that the prompt holds are not given."""
        self._rows[slot] = 0
        self._skip[slot] = prefix_frames(grid, self._form)
        self._ring[slot] = self._form.audio_pad
        slots = np.array([slot])
        for row in grid[reply_start(grid, self._form) :]:
            self.push(slots, row[None, 1:])

    def push(self, slots: NDArray[np.int64], codes: NDArray[Any]) -> list[Codes | None]:
        """Take codes [N, n_vq], one row a slot; return for each slot the frame [n_vq] it completes.

        None where there is none: too early, between stretches of sound, or in the prompt.
        """
        n_vq, rows = self._form.n_vq, self._rows[slots]
        self._ring[slots, rows % n_vq] = codes
        places = (rows[:, None] + 1 + self._codebooks) % n_vq
        frames = self._ring[slots[:, None], places, self._codebooks]
        complete = (rows >= n_vq - 1) & (frames != self._form.audio_pad).any(axis=1)
        is_new = self._skip[slots] == 0
        self._skip[slots] -= complete & ~is_new
        self._rows[slots] += 1
        return [
            frame if given else None for frame, given in zip(frames, complete & is_new, strict=True)
        ]


def message_ids(text_ids: Sequence[int], form: DelayFormat, placeholder: int) -> list[int]:
    """Text column of a reply with each finished stretch of sound as one `placeholder`.

    A stretch without a gen slot has no frames of its own and leaves nothing behind.
    """
    message: list[int] = []
    start = 0
    while start < len(text_ids):
        stop = _stretch_end(text_ids, start, form)
        if stop is None:
            message.append(text_ids[start])
            start += 1
            continue
        if form.gen_slot in text_ids[start:stop]:
            message.append(placeholder)
        start = stop
    return message


def _stretch_end(ids: Sequence[int], start: int, form: DelayFormat) -> int | None:
    """Where the stretch of sound that begins at `start` is over, if one does and is."""
    if ids[start] != form.audio_start:
        return None
    stop = start + 1
    for slot in (form.gen_slot, form.delay_slot):
        while stop < len(ids) and ids[stop] == slot:
            stop += 1
    return stop + 1 if stop < len(ids) and ids[stop] == form.audio_end else None
