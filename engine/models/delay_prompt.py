"""Prompts of the delay-pattern models (MOSS-TTS, TTSD, SoundEffect, VoiceGenerator). Numpy only.

A prompt is a chat: one user turn with a form of eight or nine fields, then the header of the reply
or, to go on with a recording, the reply's first rows. Whatever a field contains is plain text,
never a control token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from engine.api import I32Grid
from engine.hub import CheckpointError, read_json
from engine.models.delay_pattern import Codes, DelayFormat, delay, message_ids
from engine.text.plain import PlainTokenizer

Template = Literal["family", "ttsd"]
"""`ttsd`: MOSS-TTSD, whose form ignores `tokens` and has one line more. `family`: all others."""

_UNSET = "None"  # how the trained form writes a field without a value
_AUDIO = -1  # stands for a stretch of sound while a message is put together


@dataclass(frozen=True, slots=True)
class Fields:
    """The form of a user turn; what is not set is None.

    `references` has one entry per speaker, in order: codes [T, n_vq], or None for a speaker
    without a clip. `tokens` is the wished length in frames.
    """

    text: str | None = None
    references: Sequence[NDArray[Any] | None] | None = None
    instruction: str | None = None
    tokens: int | None = None
    quality: str | None = None
    sound_event: str | None = None
    ambient_sound: str | None = None
    language: str | None = None


Piece = str | int | Codes
"""Part of a message: text, a control id, or frames [T, n_vq] of sound."""


@dataclass(frozen=True, slots=True)
class DelayPrompt:
    """Builds grids i32 [S, 1 + n_vq]. Methods raise `ValueError` for codes that do not fit."""

    form: DelayFormat
    tokenizer: PlainTokenizer
    template: Template

    @classmethod
    def from_checkpoint(cls, model_dir: str | Path, template: Template = "family") -> DelayPrompt:
        """Read config.json and tokenizer.json. Raises `CheckpointError`."""
        model_dir = Path(model_dir)
        form = DelayFormat.from_json(read_json(model_dir, "config.json"))
        vocabulary = model_dir / "tokenizer.json"
        if not vocabulary.is_file():
            raise CheckpointError(f"{model_dir} has no tokenizer.json")
        return cls(form, PlainTokenizer.from_file(vocabulary), template)

    def generation(self, fields: Fields) -> I32Grid:
        """Return the prompt of a reply from its beginning."""
        return np.concatenate([self.user_turn(fields), self._grid(self._header())])

    def continuation(self, fields: Fields, prefix: NDArray[Any]) -> I32Grid:
        """Return the prompt of a reply that goes on after the frames `prefix` [T, n_vq].

        `fields.text` is the transcript of the prefix and then the new text. The grid ends with the
        row in which the last prefix frame begins; the model completes that frame and those that
        are still open beside it.
        """
        if not len(prefix):
            raise ValueError("the audio to continue has no frames; use a plain generation")
        reply = self.assistant_turn([prefix])
        tail = self.form.n_vq - 1 + 1 + len(self._close())  # delay rows, audio_end, end of turn
        return np.concatenate([self.user_turn(fields), reply[:-tail]])

    def user_turn(self, fields: Fields) -> I32Grid:
        """Return a whole user turn."""
        message = self._user_message(fields)
        return self._grid([self.form.im_start, "user\n", *message, *self._closing()])

    def assistant_turn(self, content: Sequence[str | NDArray[Any]]) -> I32Grid:
        """Return a whole assistant turn of texts and frames [T, n_vq].

        Stretches of sound with nothing but white space between them become one.
        """
        pieces: list[str | Codes] = []
        for part in content:
            pieces.append(part if isinstance(part, str) else self._check(part, "the reply"))
        return self._grid([*self._header(), *_joined(pieces), *self._closing()], reply=True)

    def message(self, text_ids: Sequence[int]) -> str:
        """Return what a reply says in words: its text column, `<|audio|>` for each sound."""
        ids = message_ids(text_ids, self.form, _AUDIO)
        words, start = "", 0
        names = {token: marker for marker, token in self.tokenizer.markers.items()}
        for place in [*(i for i, token in enumerate(ids) if token in names or token == _AUDIO)]:
            words += self.tokenizer.decode(ids[start:place]) + names.get(ids[place], "<|audio|>")
            start = place + 1
        return words + self.tokenizer.decode(ids[start:])

    def _user_message(self, fields: Fields) -> list[Piece]:
        is_ttsd = self.template == "ttsd"
        lines: list[Piece] = ["<user_inst>\n- Reference(s):\n"]
        lines += self._references(fields.references)
        for name, value in (
            ("Instruction", fields.instruction),
            ("Tokens", None if is_ttsd else fields.tokens),
            ("Quality", fields.quality),
            ("Sound Event", fields.sound_event),
            ("Ambient Sound", fields.ambient_sound),
            ("Language", fields.language),
            *([("Scene", None)] if is_ttsd else []),
            ("Text", fields.text),
        ):
            lines.append(f"\n- {name}:\n{_UNSET if value is None else value}")
        return [*lines, "\n</user_inst>"]

    def _references(self, references: Sequence[NDArray[Any] | None] | None) -> list[Piece]:
        if references is None:
            return [_UNSET]
        entries: list[list[Piece]] = []
        for number, clip in enumerate(references, 1):
            if clip is not None:
                codes = self._check(clip, f"reference {number}")
                entries.append([f"[S{number}]:\n", codes])
            elif self.template == "ttsd":
                entries.append([f"[S{number}]: {_UNSET}"])
        return [piece for i, entry in enumerate(entries) for piece in (["\n"] * (i > 0) + entry)]

    def _header(self) -> list[Piece]:
        return [self.form.im_start, "assistant\n"]

    def _closing(self) -> list[Piece]:
        return [self.form.im_end, "\n"]

    def _close(self) -> list[int]:
        return [self.form.im_end, *self.tokenizer.encode("\n")]

    def _grid(self, pieces: Sequence[Piece], reply: bool = False) -> I32Grid:
        """Text between control ids and sounds is encoded as a whole: merges cross the fields."""
        parts: list[NDArray[np.int64]] = []
        text = ""
        for piece in [*pieces, ""]:
            if isinstance(piece, str) and piece:
                text += piece
                continue
            parts.append(self._text_rows(self.tokenizer.encode(text)))
            text = ""
            if isinstance(piece, int):
                parts.append(self._text_rows([piece]))
            elif not isinstance(piece, str):
                parts.append(self._sound_rows(piece, reply))
        return np.concatenate(parts).astype(np.int32)

    def _text_rows(self, ids: Sequence[int]) -> NDArray[np.int64]:
        rows = np.full((len(ids), self.form.columns), self.form.audio_pad, np.int64)
        rows[:, 0] = ids
        return rows

    def _sound_rows(self, codes: Codes, reply: bool) -> NDArray[np.int64]:
        form, frames = self.form, len(codes)
        if not frames:
            return self._text_rows([form.audio_start, form.audio_end])
        begin, after = (
            (form.gen_slot, form.delay_slot) if reply else (form.user_slot, form.user_slot)
        )
        slots = [begin] * frames + [after] * (form.n_vq - 1)
        rows = self._text_rows([form.audio_start, *slots, form.audio_end])
        rows[1:-1, 1:] = delay(codes, form.audio_pad)
        return rows

    def _check(self, codes: NDArray[Any], what: str) -> Codes:
        codes, n_vq = np.asarray(codes), self.form.n_vq
        expected = f"expected integers [frames, {n_vq}]"
        if codes.dtype.kind not in "iu":
            raise ValueError(f"{what} codes are {codes.dtype}, {expected}")
        if self.template == "ttsd" and codes.ndim == 2 and codes.shape[1] > n_vq:
            codes = codes[:, :n_vq]  # the first levels of a deeper quantizer
        if codes.ndim != 2 or codes.shape[1] != n_vq:
            raise ValueError(f"{what} codes are {list(codes.shape)}, {expected}")
        wrong = (codes < 0) | (codes >= self.form.audio_pad)
        if wrong.any():
            frame, codebook = np.argwhere(wrong)[0]
            raise ValueError(
                f"{what} code {codes[frame, codebook]} in frame {frame}, codebook {codebook} "
                f"is outside 0..{self.form.audio_pad - 1}"
            )
        return codes.astype(np.int64)


def duration_tokens(duration_s: float, frame_ms: float) -> int:
    """Return the `tokens` of a wished length: whole frames, at least one."""
    if not duration_s > 0:
        raise ValueError(f"the duration is {duration_s} s; it must be positive")
    return max(1, int(duration_s * 1000 / frame_ms))


def _joined(pieces: Sequence[str | Codes]) -> list[Piece]:
    """Merge sounds with nothing but white space between them."""
    joined: list[Piece] = []
    for piece in pieces:
        if isinstance(piece, str):
            joined.append(piece)
            continue
        gap = len(joined)
        while gap and isinstance(text := joined[gap - 1], str) and not text.strip():
            gap -= 1
        before = joined[gap - 1] if gap else None
        if isinstance(before, np.ndarray):
            joined[gap - 1 :] = [np.concatenate([before, piece])]
        else:
            joined.append(piece)
    return joined
