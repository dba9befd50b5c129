"""Prompts of MOSS-TTS-Nano. Loads no torch, so that the server can build them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from engine.api import I32Grid
from engine.hub import CheckpointError, read_json
from engine.models.slot_prompt import FIELDS, NONE, SlotGrids
from engine.text.chunks import Chunk, chunks
from engine.text.pieces import PieceTokenizer

CHUNK_TOKENS = 75
"""Most tokens of one chunk of a long text, as in the model's applications."""

_FIELDS = FIELDS.format(
    **dict.fromkeys(
        ("instruction", "tokens", "quality", "sound_event", "ambient_sound", "language"), NONE
    )
)


@dataclass(frozen=True, slots=True)
class NanoPrompt:
    """Builds grids. Whatever a text contains is plain text, never a control token.

    The model takes no language, instruction or duration. Codes may have fewer codebooks than the
    model: it then speaks that many (`GlobalLocalRunner.open`). Raises `ValueError` for codes that
    do not fit the model.
    """

    tokenizer: PieceTokenizer
    grids: SlotGrids
    field_ids: tuple[int, ...]

    @classmethod
    def from_checkpoint(cls, model_dir: str | Path) -> NanoPrompt:
        """Read config.json and tokenizer.model. Raises `CheckpointError`."""
        model_dir = Path(model_dir)
        model = model_dir / "tokenizer.model"
        if not model.is_file():
            raise CheckpointError(f"{model_dir} has no tokenizer.model")
        tokenizer = PieceTokenizer.from_file(model)
        config = read_json(model_dir, "config.json")
        vocabulary = config.get("vocab_size", tokenizer.size)
        if tokenizer.size > vocabulary:
            raise CheckpointError(
                f"{model} has {tokenizer.size} pieces, the model knows only {vocabulary}"
            )
        encode = tokenizer.encode_template
        grids = SlotGrids.from_settings(config, encode, model_dir)
        return cls(tokenizer, grids, tuple(encode(_FIELDS)))

    def plain(self, text: str) -> I32Grid:
        """The model's own choice of voice."""
        return self.grids.plain(self.field_ids, self.tokenizer.encode(text))

    def clone(self, text: str, reference: NDArray[Any]) -> I32Grid:
        """The voice of `reference`, codes [T, 1..n_vq]."""
        return self.grids.clone(
            [reference], self.field_ids, self.tokenizer.encode(text), fewer=True
        )

    def continuation(self, transcript: str, text: str, codes: NDArray[Any]) -> I32Grid:
        """Go on after `codes` [T, 1..n_vq], in which `transcript` is said."""
        text_ids = self.tokenizer.encode(transcript + text)
        return self.grids.continuation(codes, self.field_ids, text_ids, fewer=True)

    def chunks(self, text: str, budget_tokens: int = CHUNK_TOKENS) -> list[Chunk]:
        """Cut a long text. Each chunk is a prompt, a response and a codec stream of its own.

        They share their reference and are spoken in order, with the given pauses between them.
        """
        return chunks(text, lambda part: len(self.tokenizer.encode(part)), budget_tokens)
