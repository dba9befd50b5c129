"""SentencePiece models, with control markers as plain text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sentencepiece import SentencePieceProcessor

from engine.text.plain import join_surrogates

# Numbers of the published model format: a model is its pieces, a piece has a text and a kind.
_PIECES, _KIND = 1, 3
_CONTROL, _USER_DEFINED = 3, 4
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED_BYTES = {_FIXED64: 8, _FIXED32: 4}


class PieceTokenizer:
    """A `tokenizer.model` twice: for the templates it was trained with, and for anyone's text.

    Upstream encodes both alike, so that text which happens to contain `<user_inst>` or another
    marker becomes a control token. Here `encode` knows no markers.
    """

    def __init__(self, model: bytes) -> None:
        """Raises `ValueError` if `model` is not a SentencePiece model."""
        try:
            self._trusted: Any = SentencePieceProcessor(model_proto=model)
            self._plain: Any = SentencePieceProcessor(model_proto=without_markers(model))
        except (IndexError, RuntimeError) as error:
            raise ValueError(f"not a SentencePiece model: {error}") from error

    @classmethod
    def from_file(cls, path: str | Path) -> PieceTokenizer:
        """Read a `tokenizer.model`. Raises `ValueError` naming the file if it is none."""
        try:
            return cls(Path(path).read_bytes())
        except ValueError as error:
            raise ValueError(f"{path} is {error}") from error

    @property
    def size(self) -> int:
        """How many pieces there are; ids are below it."""
        size: int = self._plain.get_piece_size()
        return size

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, markers spelled out; lone surrogates become U+FFFD."""
        ids: list[int] = self._plain.encode(join_surrogates(text))
        return ids

    def encode_template(self, text: str) -> list[int]:
        """Return the ids of a template of ours, in which markers are single ids."""
        ids: list[int] = self._trusted.encode(text)
        return ids


def without_markers(model: bytes) -> bytes:
    """Turn the user-defined pieces of a serialised model into control pieces.

    Those keep their ids and are never found in a text.
    """
    changed = bytearray(model)
    for number, start, stop in _fields(model, 0, len(model)):
        if number != _PIECES:
            continue
        for inner, place, _ in _fields(model, start, stop):
            if inner == _KIND and model[place] == _USER_DEFINED:
                changed[place] = _CONTROL
    return bytes(changed)


def _fields(data: bytes, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """Yield number, start and stop of each field of a serialised protocol buffer message."""
    while start < stop:
        key, start = _varint(data, start)
        kind = key & 7
        if kind == _BYTES:
            size, start = _varint(data, start)
        elif kind == _VARINT:
            size = _varint(data, start)[1] - start
        elif kind in _FIXED_BYTES:
            size = _FIXED_BYTES[kind]
        else:
            raise ValueError(f"not a SentencePiece model: it has a field of wire type {kind}")
        yield key >> 3, start, start + size
        start += size


def _varint(data: bytes, start: int) -> tuple[int, int]:
    """Return the number at `start` and where it ends."""
    value = shift = 0
    while True:
        byte = data[start]
        value |= (byte & 0x7F) << shift
        start, shift = start + 1, shift + 7
        if not byte & 0x80:
            return value, start
