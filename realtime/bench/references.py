"""Reference recordings: speakers that do not exist, and how requests name them.

Their content differs, so that a cache by content is put to work: `mixed` repeats some as the usual
data set does, `cold` has a new speaker in each request, `hot` the same ones once more, `registered`
stores them as voices first.
"""

from __future__ import annotations

import asyncio
import base64
import io
import time
import wave
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import httpx
import numpy as np
from numpy.typing import NDArray

from realtime.bench.workload import Line

Tier = Literal["none", "mixed", "cold", "hot", "registered"]

RATE_HZ = 24_000
MIXED_SPEAKERS = 666 / 1088
"""Speakers for each row of the usual data set; the other rows repeat one of before."""

ROUND_SPEAKERS = 100_000
"""Speakers of another round are other ones where they have to be new."""

WARM_UP_SPEAKER = 90_000_000
"""From here on: speakers of the warm-up, whom no round knows."""

_HARMONICS = 24
_BANDWIDTH_HZ = 130.0
_FORMANTS_HZ = ((350, 750), (900, 1900), (2200, 3000))
_FORMANT_STEP_S = 0.01


def speakers_of(tier: Tier, count: int, seed: int, round_number: int = 0) -> list[int] | None:
    """Who says each of `count` lines; None where nobody is named."""
    if tier == "none":
        return None
    if tier != "mixed":
        return [ROUND_SPEAKERS * round_number + number for number in range(count)]
    random = np.random.default_rng(seed)
    speakers = max(1, round(count * MIXED_SPEAKERS))
    places = {0, *(random.permutation(count - 1)[: speakers - 1] + 1).tolist()}
    said, known = [], 0
    for place in range(count):
        said.append(known if place in places else int(random.integers(known)))
        known += place in places
    return said


def recording(speaker: int) -> bytes:
    """A WAV of one speaker, 24 kHz mono: 2 to 10 s, 1 s or 30 s of one in twenty each half.

    Harmonics of 90 to 250 Hz under three moving formants, with noise, swelling 4 times a second.
    """
    random = np.random.default_rng((20261, speaker))
    length_s = random.choice((1.0, 30.0)) if random.random() < 0.05 else random.uniform(2, 10)
    at_s = np.arange(int(length_s * RATE_HZ)) / RATE_HZ
    steps_s = np.arange(0, length_s + _FORMANT_STEP_S, _FORMANT_STEP_S)
    formants_hz = [
        random.uniform(low, high)
        * (1 + 0.15 * np.sin(2 * np.pi * random.uniform(0.5, 3) * steps_s + random.uniform(0, 6)))
        for low, high in _FORMANTS_HZ
    ]
    pitch_hz = random.uniform(90, 250)
    sound = 0.02 * random.standard_normal(len(at_s))
    for harmonic in range(1, _HARMONICS + 1):
        hz = harmonic * pitch_hz
        level = sum(np.exp(-(((hz - formant) / _BANDWIDTH_HZ) ** 2)) for formant in formants_hz)
        level = np.interp(at_s, steps_s, level / np.sqrt(harmonic))
        sound += level * np.sin(2 * np.pi * hz * at_s)
    sound *= 0.6 + 0.4 * np.sin(2 * np.pi * 4 * at_s)
    return _wav(0.5 * sound / np.abs(sound).max())


def _wav(sound: NDArray[np.float64]) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as written:
        written.setparams((1, 2, RATE_HZ, 0, "NONE", ""))
        written.writeframes(np.rint(sound * 32767).astype("<i2").tobytes())
    return file.getvalue()


class References:
    """What requests say of their speakers. Recordings are made before a load begins."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.registration_ms: list[float] = []
        self._client = client
        self._fields: dict[int, dict[str, Any]] = {}
        self._voices: list[str] = []

    def fields(self, line: Line) -> dict[str, Any]:
        """The fields of a request for this line."""
        return {} if line.speaker is None else self._fields[line.speaker]

    async def send_inline(self, lines: Sequence[Line]) -> None:
        """Have the recordings of these lines' speakers travel in each request."""
        for speaker in _speakers(lines):
            sound = await asyncio.to_thread(recording, speaker)
            url = "data:audio/wav;base64," + base64.b64encode(sound).decode("ascii")
            self._fields[speaker] = {"ref_audio": url}

    async def register(self, lines: Sequence[Line]) -> None:
        """Store them as voices, by one upload after the other. Raises `httpx.HTTPError`."""
        for speaker in _speakers(lines):
            sound, name = await asyncio.to_thread(recording, speaker), f"bench-{speaker}"
            started_s = time.perf_counter()
            answer = await self._client.post(
                "/v1/voices", data={"name": name}, files={"audio": (f"{name}.wav", sound)}
            )
            answer.raise_for_status()
            self.registration_ms.append(1000 * (time.perf_counter() - started_s))
            self._voices.append(answer.json()["id"])
            self._fields[speaker] = {"voice": name}

    async def forget(self) -> None:
        """Delete what was stored."""
        while self._voices:
            await self._client.delete(f"/v1/voices/{self._voices.pop()}")


def _speakers(lines: Iterable[Line]) -> list[int]:
    return sorted({line.speaker for line in lines if line.speaker is not None})
