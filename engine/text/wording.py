"""A text in two forms: as it was written and as it is spoken, piece by piece."""

from __future__ import annotations

import dataclasses
import unicodedata
from collections.abc import Iterable
from typing import Final, NamedTuple


class Piece(NamedTuple):
    """A stretch of text in both forms; one of them may be empty.

    Where both are the same it may be cut anywhere; else it is heard as a whole or not at all.
    """

    spoken: str
    written: str

    @property
    def is_verbatim(self) -> bool:
        """Whether it is spoken as it is written."""
        return self.spoken == self.written


@dataclasses.dataclass(frozen=True, slots=True)
class Wording:
    """A text as pieces in order. Lengths and positions count code points."""

    pieces: tuple[Piece, ...] = ()

    @classmethod
    def verbatim(cls, text: str) -> Wording:
        """Return a text that is spoken as it is written."""
        return cls((Piece(text, text),) if text else ())

    @property
    def spoken(self) -> str:
        """What the model is given."""
        return "".join(piece.spoken for piece in self.pieces)

    @property
    def written(self) -> str:
        """What the client sent."""
        return "".join(piece.written for piece in self.pieces)

    def split(self, spoken_chars: int) -> tuple[Wording, Wording]:
        """Cut after so much of the spoken text.

        A piece that is cut in two keeps its written form after the cut, and what is written there
        without being spoken (the end of a bold word) stays before it.
        """
        if spoken_chars == 0 and self.spoken:
            return Wording(), self
        before: list[Piece] = []
        pieces = iter(self.pieces)
        for piece in pieces:
            if len(piece.spoken) > spoken_chars:
                head, tail = piece.spoken[:spoken_chars], piece.spoken[spoken_chars:]
                whole = piece.is_verbatim
                before += [Piece(head, head if whole else "")] if head else []
                after = [Piece(tail, tail if whole else piece.written), *pieces]
                return Wording(tuple(before)), Wording(tuple(after))
            before.append(piece)
            spoken_chars -= len(piece.spoken)
        return Wording(tuple(before)), Wording()

    def written_prefix(self, text: str) -> Wording:
        """Return the wording of `text`: ours as far as it goes, what differs as it is written."""
        kept: list[Piece] = []
        for piece in self.pieces:
            if not text.startswith(piece.written):
                break
            kept.append(piece)
            text = text.removeprefix(piece.written)
        return Wording((*kept, *Wording.verbatim(text).pieces))


EMPTY: Final = Wording()


def merged(pieces: Iterable[Piece]) -> list[Piece]:
    """Join neighbours that are spoken as they are written; drop those that are empty."""
    joined: list[Piece] = []
    for piece in pieces:
        if joined and piece.is_verbatim and joined[-1].is_verbatim:
            text = joined.pop().spoken + piece.spoken
            piece = Piece(text, text)
        if piece.spoken or piece.written:
            joined.append(piece)
    return joined


def spoken_chars(text: str, decoded: str) -> int:
    """Return how much of `text` the tokenizer's `decoded` is the beginning of.

    The tokenizer decodes to normal form C, whose length may differ from that of the text.
    """
    if text.startswith(decoded):
        return len(decoded)
    lengths = range(len(decoded), len(text))
    return next(
        (n for n in lengths if len(unicodedata.normalize("NFC", text[:n])) >= len(decoded)),
        len(text),
    )
