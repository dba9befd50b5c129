"""How alike two voices are: cosines of speaker embeddings (resemblyzer)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from engine.train.evaluation.speech import Said, pooled

RATE_HZ = 16_000
SHORTEST_S = 6.0
"""Less sound than this says little about a voice: cosines of shorter clips scatter by 0.1."""


class VoicePrints:
    """Embeds the pooled speech of each voice; one voice's cosine with itself is 0.96 to 0.98."""

    def __init__(self) -> None:
        from resemblyzer import VoiceEncoder

        self._encoder = VoiceEncoder("cpu", verbose=False)

    def of(
        self, said: Sequence[Said], *, shortest_s: float = SHORTEST_S
    ) -> dict[str, NDArray[np.float32]]:
        """Return an embedding [256] for each voice that has enough sound."""
        prints = {}
        for voice in sorted({one.line.voice for one in said}):
            sound = pooled(said, voice, RATE_HZ)
            if len(sound) and len(sound) >= shortest_s * RATE_HZ:
                prints[voice] = self._encoder.embed_utterance(_level(sound))
        return prints


def _level(sound: NDArray[np.float32]) -> NDArray[np.float32]:
    """Bring the sound to -30 dBFS, the loudness that the encoder was trained on."""
    power = float(np.sqrt(np.mean(np.square(sound)))) or 1.0
    return (sound * (10 ** (-30 / 20) / power)).astype(np.float32)


def cosines(
    voices: Mapping[str, NDArray[np.float32]], references: Mapping[str, NDArray[np.float32]]
) -> dict[str, dict[str, float]]:
    """Return voice -> reference -> cosine, all against all."""
    return {
        voice: {name: float(print_ @ other) for name, other in references.items()}
        for voice, print_ in voices.items()
    }
