"""The token grids that MOSS-TTS-Local-Transformer and MOSS-TTS-Nano share. Loads no torch.

A grid is i32 [T, 1 + n_vq]: column 0 is text or the slot of a frame, the others are that frame's
codes (`audio_pad` where there is none). The whole text comes before the first frame.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.api import I32Grid
from engine.hub import CheckpointError

# The strings that both models were trained with. Each is encoded on its own.
USER = "user\n"
REFERENCE = "<user_inst>\n- Reference(s):\n"
NONE = "None"
FIELDS = (
    "\n- Instruction:\n{instruction}\n- Tokens:\n{tokens}\n- Quality:\n{quality}\n"
    "- Sound Event:\n{sound_event}\n- Ambient Sound:\n{ambient_sound}\n"
    "- Language:\n{language}\n- Text:\n"
)
END_OF_TEXT = "\n</user_inst>"
NEXT_TURN = "\n"
ASSISTANT = "assistant\n"

Encode = Callable[[str], Sequence[int]]


@dataclass(frozen=True, slots=True)
class SlotGrids:
    """Builds grids from ids. Raises `ValueError`, with a message for people, for unfit codes."""

    n_vq: int
    audio_pad: int  # also the number of codes in a codebook
    im_start: int
    im_end: int
    audio_start: int
    audio_end: int
    user_slot: int  # beside the frames of a reference
    assistant_slot: int  # beside the frames of the reply
    head_ids: tuple[int, ...]  # up to the reference
    none_ids: tuple[int, ...]
    tail_ids: tuple[int, ...]  # from the text to the reply

    @classmethod
    def from_settings(cls, config: dict[str, Any], encode: Encode, model_dir: Path) -> SlotGrids:
        """Read `config.json`; `encode` is for templates. Raises `CheckpointError`."""
        names = {
            "n_vq": "n_vq",
            "im_start": "im_start_token_id",
            "im_end": "im_end_token_id",
            "audio_start": "audio_start_token_id",
            "audio_end": "audio_end_token_id",
            "user_slot": "audio_user_slot_token_id",
        }
        absent = [name for name in names.values() if name not in config]
        aliased = {
            "audio_pad": ("audio_pad_code", "audio_pad_token_id"),
            "assistant_slot": (
                "audio_assistant_gen_slot_token_id",
                "audio_assistant_slot_token_id",
            ),
        }
        absent += [old for new, old in aliased.values() if new not in config and old not in config]
        if absent:
            raise CheckpointError(f"{model_dir / 'config.json'} lacks {', '.join(absent)}")
        ids = {field: config[name] for field, name in names.items()}
        ids |= {field: config.get(new, config.get(old)) for field, (new, old) in aliased.items()}
        return cls(
            **ids,
            head_ids=(ids["im_start"], *encode(USER), *encode(REFERENCE)),
            none_ids=tuple(encode(NONE)),
            tail_ids=(
                *encode(END_OF_TEXT),
                ids["im_end"],
                *encode(NEXT_TURN),
                ids["im_start"],
                *encode(ASSISTANT),
                ids["audio_start"],
            ),
        )

    def plain(self, field_ids: Sequence[int], text_ids: Sequence[int]) -> I32Grid:
        """A text, and nothing to speak it like."""
        return self._text((*self.head_ids, *self.none_ids, *field_ids, *text_ids, *self.tail_ids))

    def clone(
        self,
        references: Sequence[NDArray[Any]],
        field_ids: Sequence[int],
        text_ids: Sequence[int],
        *,
        fewer: bool = False,
    ) -> I32Grid:
        """A text to be spoken like `references`, each codes [T, n_vq].

        With `fewer` they may have less codebooks than the model.
        """
        if not references:
            raise ValueError("cloning needs a reference; for none at all use the plain prompt")
        blocks = [self._text(self.head_ids)]
        for number, codes in enumerate(references, 1):
            what = "the reference" if len(references) == 1 else f"reference {number}"
            blocks += [
                self._text((self.audio_start,)),
                self._frames(self.user_slot, codes, what, fewer),
                self._text((self.audio_end,)),
            ]
        return np.concatenate([*blocks, self._text((*field_ids, *text_ids, *self.tail_ids))])

    def continuation(
        self,
        codes: NDArray[Any],
        field_ids: Sequence[int],
        text_ids: Sequence[int],
        *,
        fewer: bool = False,
    ) -> I32Grid:
        """A text of which `codes` [T, n_vq] are the beginning; the reply goes on after them.

        The codec must be given these codes first. Its sound of them is not part of the reply: T
        frames, to the sample. (Upstream computes the cut from a ratio and may miss it by one.)
        """
        frames = self._frames(self.assistant_slot, codes, "the recording to go on from", fewer)
        return np.concatenate([self.plain(field_ids, text_ids), frames])

    def _text(self, ids: Sequence[int]) -> I32Grid:
        grid = np.full((len(ids), 1 + self.n_vq), self.audio_pad, np.int32)
        grid[:, 0] = ids
        return grid

    def _frames(self, slot: int, codes: NDArray[Any], what: str, fewer: bool) -> I32Grid:
        codes = self._check_codes(codes, what, fewer)
        grid = self._text((slot,) * len(codes))
        grid[:, 1 : 1 + codes.shape[1]] = codes
        return grid

    def _check_codes(self, codes: NDArray[Any], what: str, fewer: bool) -> NDArray[Any]:
        codes = np.asarray(codes)
        wanted = f"expected integers [frames, {'1..' if fewer else ''}{self.n_vq}]"
        if codes.dtype.kind not in "iu":
            raise ValueError(f"the codes of {what} are {codes.dtype}; {wanted}")
        fits = codes.ndim == 2 and (
            1 <= codes.shape[1] <= self.n_vq if fewer else codes.shape[1] == self.n_vq
        )
        if not fits:
            raise ValueError(f"the codes of {what} are {list(codes.shape)}; {wanted}")
        if not len(codes):
            raise ValueError(f"{what} has no frames")
        wrong = (codes < 0) | (codes >= self.audio_pad)
        if wrong.any():
            frame, codebook = np.argwhere(wrong)[0]
            raise ValueError(
                f"code {codes[frame, codebook]} of {what}, frame {frame}, codebook {codebook}, is "
                f"outside 0..{self.audio_pad - 1}"
            )
        return codes
