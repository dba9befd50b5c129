"""The tokens of a byte-level BPE and what may stand beside what."""

from __future__ import annotations

import bisect
import functools
import sys
from collections.abc import Iterator
from typing import Any

from engine.text.pretoken import PATTERN

_NEVER = sys.maxsize
_MAX_TRIES = 64
_CACHED = 1 << 16

Edge = tuple[int, int]  # a token at the edge of a larger one, the rank of the merge that takes it


class Vocabulary:
    """Tokens as bytes, and which token may follow which inside one pre-token.

    Merging by rank, a pair of tokens stays a pair exactly if no merge ever crosses the border
    between them. Until then each side merges as if it were alone, so the tokens that meet at the
    border are the left one's last parts and the right one's first parts, each until the merge that
    takes it into the next larger part.
    """

    def __init__(self, tokens: dict[int, bytes], merges: list[tuple[int, int, int]]) -> None:
        """Take the bytes of all ids, and (left, right, merged) ids in order of rank."""
        self._id = {data: token for token, data in tokens.items()}
        self._sorted = sorted(self._id)
        self._rank: dict[tuple[int, int], int] = {}
        self._split: dict[int, tuple[int, int, int]] = {}
        for rank, (left, right, merged) in enumerate(merges):
            self._rank[left, right] = rank
            self._split[merged] = left, right, rank
        self.look_up = functools.lru_cache(_CACHED)(self._look_up)
        self.may_follow = functools.lru_cache(_CACHED)(self._may_follow)
        self.may_grow = functools.lru_cache(_CACHED)(self._may_grow)
        self._reproduces = functools.lru_cache(_CACHED)(self._reproduces_uncached)

    @classmethod
    def from_settings(cls, settings: dict[str, Any]) -> Vocabulary:
        """Read the contents of a `tokenizer.json`.

        Raises `ValueError` when the text is prepared otherwise than Qwen does it, when a merge
        comes before the merges that make its parts, or when two merges make one token.
        """
        _check_supported(settings)
        ids: dict[str, int] = settings["model"]["vocab"]
        data = {ids[char]: bytes([byte]) for char, byte in _byte_alphabet().items()}
        merges = []
        for left, right in _merge_pairs(settings["model"]["merges"]):
            merge = a, b, merged = ids[left], ids[right], ids[left + right]
            if a not in data or b not in data or merged in data:
                raise ValueError(
                    f"its merge of {left!r} and {right!r} comes before the merges that make these, "
                    "or makes a token that it already has"
                )
            data[merged] = data[a] + data[b]
            merges.append(merge)
        return cls(data, merges)

    def _look_up(self, head: bytes) -> tuple[int | None, bool]:
        """Return the id of the token `head`, if it is one, and whether a longer one begins so."""
        low, high = self._longer(head)
        return self._id.get(head), low < high

    def _may_follow(self, before: int | None, token: int) -> bool:
        """Whether `before` then `token` is how their bytes are encoded (None: nothing before)."""
        return self._reproduces(token) and (
            before is None or self._first_crossing(before, token) == _NEVER
        )

    def _may_grow(self, before: int | None, head: bytes) -> bool:
        """Whether a token longer than `head` that begins so may follow `before`; True in doubt."""
        low, high = self._longer(head)
        return high - low > _MAX_TRIES or any(
            self.may_follow(before, self._id[token]) for token in self._sorted[low:high]
        )

    def _longer(self, head: bytes) -> tuple[int, int]:
        """Where the tokens that begin with `head`, itself left out, are among the sorted."""
        after = head[:-1] + bytes([head[-1] + 1])  # UTF-8 has no byte 255
        low = bisect.bisect_right(self._sorted, head)
        return low, bisect.bisect_left(self._sorted, after, low)

    def _reproduces_uncached(self, token: int) -> bool:
        """Whether the token's bytes alone are encoded as it."""
        if token not in self._split:
            return True
        left, right, rank = self._split[token]
        return (
            self._reproduces(left)
            and self._reproduces(right)
            and self._first_crossing(left, right) == rank
        )

    def _first_crossing(self, left: int, right: int) -> int:
        """Return the lowest rank of a merge across the border of two tokens."""
        first = _NEVER
        right_edges = list(self._edges(right, 0))
        for a, a_until in self._edges(left, 1):
            for b, b_until in right_edges:
                rank = self._rank.get((a, b), _NEVER)
                # Of equal pairs the leftmost merges first: a's own merge wins a tie, b's loses it.
                if rank < a_until and rank <= b_until:
                    first = min(first, rank)
        return first

    def _edges(self, token: int, side: int) -> Iterator[Edge]:
        """Yield the token, its first (side 0) or last (1) part, that one's, down to a byte."""
        until = _NEVER
        while token in self._split:
            yield token, until
            split = self._split[token]
            token, until = split[side], split[2]
        yield token, until


def _byte_alphabet() -> dict[str, int]:
    """Map the characters that stand for bytes in a byte-level vocabulary to their bytes."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in printable]
    shifted = {chr(0x100 + index): byte for index, byte in enumerate(others)}
    return {chr(byte): byte for byte in printable} | shifted


def _merge_pairs(merges: list[Any]) -> Iterator[tuple[str, str]]:
    """Older files write a merge as one string, newer ones as a pair."""
    for merge in merges:
        left, right = merge.split(" ") if isinstance(merge, str) else merge
        yield left, right


def _check_supported(settings: dict[str, Any]) -> None:
    model = settings["model"]
    steps = (settings["pre_tokenizer"] or {}).get("pretokenizers") or [{}, {}]
    found = {
        "model": model["type"],
        "normalizer": (settings["normalizer"] or {}).get("type"),
        "pattern": steps[0].get("pattern", {}).get("Regex"),
        "pre_tokenizer": steps[-1].get("type"),
        "add_prefix_space": steps[-1].get("add_prefix_space"),
        "ignore_merges": model.get("ignore_merges", False),
        "dropout": model.get("dropout"),
        "continuing_subword_prefix": model.get("continuing_subword_prefix") or None,
        "end_of_word_suffix": model.get("end_of_word_suffix") or None,
    }
    wanted = {
        "model": "BPE",
        "normalizer": "NFC",
        "pattern": PATTERN,
        "pre_tokenizer": "ByteLevel",
        "add_prefix_space": False,
        "ignore_merges": False,
        "dropout": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
    }
    for name, value in wanted.items():
        if found[name] != value:
            raise ValueError(f"its {name} is {found[name]!r}; only {value!r} is supported")
