"""The texts that are spoken for an evaluation; no training sentence equals one of them."""

from __future__ import annotations

from pathlib import Path

from engine.train.corpus.sentences import normalised

NAMES = ("agent", "words", "final", "user")
"""Agent-like sentences; random words; a set that is looked at only once; the user's turns."""

_HERE = Path(__file__).parent / "texts"


def read_texts(name_or_file: str) -> list[str]:
    """Return the texts of a set, or of a file with one text a line.

    Raises `ValueError` for a name that is neither, and for a file without a text.
    """
    path = _HERE / f"{name_or_file}.txt" if name_or_file in NAMES else Path(name_or_file)
    if not path.is_file():
        raise ValueError(f"{name_or_file!r} is no file, and none of {', '.join(NAMES)}")
    texts = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    texts = [text for text in texts if normalised(text)]
    if not texts:
        raise ValueError(f"{path} has no text: write one on each line")
    return texts


def held_out() -> frozenset[str]:
    """Every evaluation text, normalised: what a corpus must leave out."""
    return frozenset(normalised(text) for name in NAMES for text in read_texts(name))
