"""Cut an utterance at the heard position: whole frames, and the words that go with them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from engine.api import U16Codes
from engine.text.wording import Wording
from realtime.session.heard import heard_text, total_units
from realtime.session.sound import FrameClock


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """Text and sound that belong together: a user item, or a segment of an assistant item.

    `ids` are those of the spoken text, as they are in the grid; `codes` u16 `[F, n_vq]`. `whole`
    is false for a segment whose sound had not reached the end of its text.
    """

    wording: Wording
    ids: tuple[int, ...]
    codes: U16Codes
    whole: bool = True

    @property
    def text(self) -> str:
        """The text as it was written."""
        return self.wording.written


@dataclasses.dataclass(frozen=True, slots=True)
class Cut:
    """The parts up to a position, that position in whole frames, and whether the text is known."""

    parts: tuple[Part, ...]
    end_ms: float
    exact: bool


class Cutter:
    """Cuts parts. `encode` gives the ids of a whole text."""

    def __init__(self, clock: FrameClock, encode: Callable[[str], list[int]]) -> None:
        self._clock = clock
        self._encode = encode

    def cut(
        self, parts: Sequence[Part], end_ms: float, syllable_ms: float, text: str | None = None
    ) -> Cut:
        """Keep the frames heard by `end_ms` and the words heard, or `text` if it is given.

        `syllable_ms` is used where a part does not show its own.
        """
        left = self._clock.whole_frames(end_ms)
        kept: list[Part] = []
        for part in parts:
            if left > 0:
                kept.append(self._cut_part(part, left, syllable_ms))
                left -= len(self._clock.sounding(part.codes))
        exact = all(part.whole for part in kept)
        if text is not None and kept:
            kept, exact = self._with_text(kept, parts[len(kept) - 1], text), True
        end_ms = sum(self._clock.length_ms(part.codes) for part in kept)
        return Cut(tuple(kept), end_ms, exact)

    def _cut_part(self, part: Part, left: int, syllable_ms: float) -> Part:
        length_ms = self._clock.length_ms(part.codes)
        units = total_units(part.wording.spoken)
        if part.whole:
            if left * self._clock.model.frame_ms >= length_ms:
                return part
            syllable_ms = length_ms / units if units else syllable_ms
        codes = self._clock.cut(part.codes, left)
        spoken = heard_text(part.wording.spoken, self._clock.length_ms(codes), syllable_ms)
        wording, _ = part.wording.split(len(spoken))
        return Part(wording, tuple(self._encode(spoken)), codes, whole=False)

    def _with_text(self, parts: list[Part], last: Part, text: str) -> list[Part]:
        """Give the parts the text heard; `last` is the last of them before it was cut."""
        before = "".join(part.text for part in parts[:-1])
        if text.startswith(before):
            wording = last.wording.written_prefix(text.removeprefix(before))
            ids = tuple(self._encode(wording.spoken))
            return [*parts[:-1], dataclasses.replace(parts[-1], wording=wording, ids=ids)]
        codes = np.concatenate([part.codes for part in parts])
        return [Part(Wording.verbatim(text), tuple(self._encode(text)), codes, whole=False)]
