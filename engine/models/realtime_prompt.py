"""The token grid of a dialogue for MOSS-TTS-Realtime. Numpy only, so that the server can build it.

A grid is i32 [T, 1 + n_vq]: column 0 is text, the others are the codebooks of one frame of sound
(`audio_pad` where there is none). Sound lags its text by `prefill_text_len` grid rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from engine.api import I32Grid, U16Codes
from engine.hub import CheckpointError, read_json
from engine.text.plain import PlainTokenizer

Layout = Literal["training", "upstream_streaming"]
Role = Literal["user", "assistant"]
TextOnlyUser = Literal["include", "skip"]

# Trained strings, used where the checkpoint has no processor_config.json of its own.
_SYSTEM = (
    "<|im_start|>system\n"
    "You are a highly expressive text-to-speech (TTS) engine developed by Mosi Intelligence. \n"
    "You possess natural language understanding, emotional modeling, and multi-style speech "
    "generation capabilities, allowing you to generate the corresponding speech based on the text "
    "given in the assistant.<|im_end|>\n"
)
_PREFILL_TEXT_LEN = 12

_VOICE_HEAD = (
    "<|im_start|>context\n"
    "The assistant section should be synthesized using the following voice timbre:"
)
_CLOSE_TURN = "<|im_end|>\n"
_OPEN_TURN: dict[Role, str] = {
    "user": "<|im_start|>user\n",
    "assistant": "<|im_start|>assistant\n",
}


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn as the model knows it: the text ids that entered the grid and the frames heard."""

    role: Role
    text_ids: tuple[int, ...]
    codes: U16Codes  # [F, n_vq], F = 0 without sound


@dataclass(frozen=True, slots=True)
class RealtimePrompt:
    """Builds grids. Layout `training` is that of the fine-tuning data.

    `upstream_streaming` is that of the upstream demo: the first turn's header starts with a second
    `<|im_end|>`, and assistant turns have no end-of-audio row. Every method raises `ValueError`,
    with a message for people, for codes or ids that do not fit the model.
    """

    tokenizer: PlainTokenizer
    n_vq: int
    text_vocab: int
    text_pad: int
    voice_pad: int  # text id beside the frames of a reference
    audio_pad: int  # also the number of codes in a codebook
    prefill_text_len: int
    system_ids: tuple[int, ...]
    voice_head_ids: tuple[int, ...]
    close_ids: tuple[int, ...]
    open_ids: dict[Role, tuple[int, ...]]

    @classmethod
    def from_checkpoint(cls, model_dir: str | Path) -> RealtimePrompt:
        """Read config.json, tokenizer.json and, where present, processor_config.json.

        Raises `CheckpointError`.
        """
        model_dir = Path(model_dir)
        config = read_json(model_dir, "config.json")
        processor: dict[str, Any] = {}
        if (model_dir / "processor_config.json").is_file():
            processor = read_json(model_dir, "processor_config.json")
        vocabulary = model_dir / "tokenizer.json"
        if not vocabulary.is_file():
            raise CheckpointError(f"{model_dir} has no tokenizer.json")
        tokenizer = PlainTokenizer.from_file(vocabulary)
        _check_settings(config, processor, tokenizer, model_dir)

        # Templates are trusted, so here the tokenizer's added tokens count; user text never
        # passes through this one.
        trusted = Tokenizer.from_file(str(vocabulary))

        def ids(template: str) -> tuple[int, ...]:
            return tuple(trusted.encode(template, add_special_tokens=False).ids)

        return cls(
            tokenizer=tokenizer,
            n_vq=config["rvq"],
            text_vocab=config["language_config"]["vocab_size"],
            text_pad=config["text_pad"],
            voice_pad=config["reference_audio_pad"],
            audio_pad=config["audio_pad_token"],
            prefill_text_len=processor.get("delay_tokens_len", _PREFILL_TEXT_LEN),
            system_ids=ids(processor.get("tts_system_prompt", _SYSTEM)),
            voice_head_ids=ids(_VOICE_HEAD),
            close_ids=ids(_CLOSE_TURN),
            open_ids={role: ids(template) for role, template in _OPEN_TURN.items()},
        )

    @property
    def audio_bos(self) -> int:
        """Code in column 1 of the grid row whose hidden state gives the first frame."""
        return self.audio_pad + 1

    @property
    def audio_eos(self) -> int:
        """Code in column 1 of the grid row after the last frame."""
        return self.audio_pad + 2

    def system(self, voice_codes: NDArray[Any] | None = None) -> I32Grid:
        """Return the system prompt, with the reference `voice_codes` [P, n_vq] if given."""
        if voice_codes is None:
            return self._text_rows(self.system_ids)
        voice = self._check_codes(voice_codes, "the voice reference", self.audio_pad)
        if not len(voice):
            raise ValueError("the voice reference has no frames; pass None for no reference")
        head = self.system_ids + self.voice_head_ids
        grid = self._text_rows(head + (self.voice_pad,) * len(voice) + self.close_ids)
        grid[len(head) : len(head) + len(voice), 1:] = voice
        return grid

    def user_turn(
        self,
        text: str,
        codes: NDArray[Any] | None,
        first: bool = False,
        layout: Layout = "training",
    ) -> I32Grid:
        """Return header, `text` and sound `codes` [F, n_vq]; None for a turn without sound.

        The text may be empty. Whatever it contains is plain text, never a control token. `first`
        is true for the first turn after the system prompt.
        """
        return self._user_turn(self.tokenizer.encode(text), codes, first, layout)

    def assistant_header(self, first: bool = False, layout: Layout = "training") -> I32Grid:
        """Return the grid rows between the previous turn (or the system prompt) and the reply."""
        return self._text_rows(self._header("assistant", first, layout))

    def assistant_turn(
        self, text_ids: Sequence[int], codes: NDArray[Any], layout: Layout = "training"
    ) -> I32Grid:
        """Return the grid rows after the assistant header: text and frames `codes` [F, n_vq].

        In the training layout an end-of-audio row follows the last frame, and text longer than the
        sound goes on after it. Upstream drops that row and all text beyond the last frame.
        """
        if not len(text_ids):
            raise ValueError("an assistant turn needs at least one text id")
        return self._assistant_turn((), text_ids, codes, layout)

    def next_prefix(self, layout: Layout = "training") -> I32Grid:
        """Return the grid rows between the last frame of one segment and the text of the next."""
        header = self.assistant_header(False, layout)
        if layout == "upstream_streaming":
            return header
        end = self._text_rows((self.text_pad,))
        end[0, 1] = self.audio_eos
        return np.concatenate([end, header])

    def dialogue(
        self,
        turns: Sequence[Turn],
        voice_codes: NDArray[Any] | None = None,
        layout: Layout = "training",
        text_only_user: TextOnlyUser = "include",
    ) -> I32Grid:
        """Return the whole context of the next reply: system prompt, turns, assistant header.

        Assistant turns without sound are left out, user turns without sound as `text_only_user`
        says. A voice goes with the whole context: another one needs a new grid.
        """
        grids = [self.system(voice_codes)]
        for turn in turns:
            first = len(grids) == 1
            if not _in_grid(turn, text_only_user):
                continue
            if turn.role == "user":
                codes = turn.codes if len(turn.codes) else None
                grids.append(self._user_turn(turn.text_ids, codes, first, layout))
            else:
                header = self._header("assistant", first, layout)
                grids.append(self._assistant_turn(header, turn.text_ids, turn.codes, layout))
        grids.append(self.assistant_header(len(grids) == 1, layout))
        return np.concatenate(grids)

    def _user_turn(
        self, text_ids: Sequence[int], codes: NDArray[Any] | None, first: bool, layout: Layout
    ) -> I32Grid:
        header = self._header("user", first, layout)
        if codes is None:
            return self._text_rows(header + self._check_text(text_ids))
        return self._spoken(header, text_ids, self._check_codes(codes, "user", self.audio_pad))

    def _assistant_turn(
        self,
        header: tuple[int, ...],
        text_ids: Sequence[int],
        codes: NDArray[Any],
        layout: Layout,
    ) -> I32Grid:
        # The model may draw ids outside the codebook; they were fed back, so they are history.
        codes = self._check_codes(codes, "assistant", self.audio_eos + 1)
        grid = self._spoken(header, text_ids, codes)
        if layout == "training":
            return grid
        return grid[: len(header) + min(len(text_ids), self.prefill_text_len) + len(codes)]

    def _spoken(
        self, header: tuple[int, ...], text_ids: Sequence[int], codes: NDArray[Any]
    ) -> I32Grid:
        text = self._check_text(text_ids)
        start = len(header) + min(len(text), self.prefill_text_len)  # of the first frame
        end = start + len(codes)
        column = header + text
        column += (self.text_pad,) * (end + 1 - len(column))
        grid = self._text_rows(column)
        grid[start - 1, 1] = self.audio_bos
        grid[start:end, 1:] = codes
        grid[end, 1] = self.audio_eos
        return grid

    def _header(self, role: Role, first: bool, layout: Layout) -> tuple[int, ...]:
        closes = not first or layout == "upstream_streaming"
        return (self.close_ids if closes else ()) + self.open_ids[role]

    def _text_rows(self, ids: tuple[int, ...]) -> I32Grid:
        grid = np.full((len(ids), 1 + self.n_vq), self.audio_pad, np.int32)
        grid[:, 0] = ids
        return grid

    def _check_text(self, text_ids: Sequence[int]) -> tuple[int, ...]:
        for position, text_id in enumerate(text_ids):
            if not 0 <= text_id < self.text_vocab:
                raise ValueError(
                    f"text id {text_id} at position {position} is outside the vocabulary "
                    f"of {self.text_vocab}"
                )
        return tuple(text_ids)

    def _check_codes(self, codes: NDArray[Any], what: str, limit: int) -> NDArray[Any]:
        codes = np.asarray(codes)
        expected = f"expected integers [frames, {self.n_vq}]"
        if codes.dtype.kind not in "iu":
            raise ValueError(f"{what} codes are {codes.dtype}, {expected}")
        if codes.ndim != 2 or codes.shape[1] != self.n_vq:
            swapped = codes.ndim == 2 and codes.shape[0] == self.n_vq
            hint = " (they look transposed)" if swapped else ""
            raise ValueError(f"{what} codes are {list(codes.shape)}, {expected}{hint}")
        wrong = (codes < 0) | (codes >= limit)
        if wrong.any():
            frame, codebook = np.argwhere(wrong)[0]
            raise ValueError(
                f"{what} code {codes[frame, codebook]} in frame {frame}, codebook {codebook} "
                f"is outside 0..{limit - 1}"
            )
        return codes


def _in_grid(turn: Turn, text_only_user: TextOnlyUser) -> bool:
    """Whether the turn is in the grid."""
    if len(turn.codes):
        return True
    return turn.role == "user" and text_only_user == "include" and bool(turn.text_ids)


def _check_settings(
    config: dict[str, Any], processor: dict[str, Any], tokenizer: PlainTokenizer, model_dir: Path
) -> None:
    needed = ("rvq", "text_pad", "reference_audio_pad", "audio_pad_token", "language_config")
    absent = [name for name in needed if name not in config]
    if absent:
        raise CheckpointError(f"{model_dir / 'config.json'} lacks {', '.join(absent)}")
    channels = processor.get("channels", config["rvq"])
    if channels != config["rvq"]:
        raise CheckpointError(
            f"{model_dir}: processor_config.json has channels {channels}, "
            f"config.json has rvq {config['rvq']}"
        )
    for marker, name in (("<|text_pad|>", "text_pad"), ("<|audio_pad|>", "reference_audio_pad")):
        if tokenizer.token_id(marker) != config[name]:
            raise CheckpointError(
                f"{model_dir}: {marker} is {tokenizer.token_id(marker)} in tokenizer.json, "
                f"but {name} is {config[name]} in config.json"
            )
