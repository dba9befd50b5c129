"""Codes as sound: which frames sound, how long they last, where a position falls."""

from __future__ import annotations

import dataclasses

import numpy as np

from engine.api import ModelInfo, U16Codes


@dataclasses.dataclass(frozen=True, slots=True)
class FrameClock:
    """Milliseconds and frames of one model.

    A frame with an id outside the codebook counts in indices and history but lasts no time.
    """

    model: ModelInfo

    def sounding(self, codes: U16Codes) -> U16Codes:
        """Return the frames that sound."""
        return codes[(codes < self.model.codebook_size).all(axis=1)]

    def length_ms(self, codes: U16Codes) -> float:
        """Return how long the frames sound."""
        return len(self.sounding(codes)) * self.model.frame_ms

    def whole_frames(self, position_ms: float) -> int:
        """Return how many whole sounding frames end by `position_ms`."""
        return int(position_ms / self.model.frame_ms + 1e-6)

    def cut(self, codes: U16Codes, sounding_frames: int) -> U16Codes:
        """Return the codes up to and including that many sounding frames."""
        sounds = (codes < self.model.codebook_size).all(axis=1)
        ends = np.flatnonzero(sounds)[:sounding_frames]
        return codes[: ends[-1] + 1] if len(ends) else codes[:0]

    def samples_ms(self, samples: int) -> float:
        """Return the length of `samples` per channel."""
        return 1000.0 * samples / self.model.rate_hz

    def samples(self, length_ms: float) -> int:
        """Return the whole samples per channel that `length_ms` has."""
        return int(length_ms * self.model.rate_hz / 1000)

    def no_codes(self) -> U16Codes:
        """Return codes of zero frames."""
        return np.zeros((0, self.model.n_vq), np.uint16)
