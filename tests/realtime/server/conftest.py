"""Sound for the server's tests: a signal that tells where it was cut, and real decoders."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray

F32 = NDArray[np.float32]


class ForwardFile(soundfile.SoundFile):
    """libsndfile reading front to back, as a player does; streamed files have no length."""

    def seekable(self) -> bool:
        return False


@pytest.fixture
def decode() -> Callable[[str, bytes], tuple[F32, int]]:
    """`decode(format, data) -> (f32 [samples, channels], rate_hz)`; bare PCM is 24 kHz mono."""

    def decode(audio_format: str, data: bytes) -> tuple[F32, int]:
        if audio_format == "pcm":
            return (np.frombuffer(data, "<i2") / np.float32(32767)).reshape(-1, 1), 24_000
        with ForwardFile(io.BytesIO(data)) as file:
            return file.read(1 << 22, dtype="float32", always_2d=True), file.samplerate

    return decode


@pytest.fixture
def steps() -> Callable[..., F32]:
    """`steps(frames, rate_hz=24000)`: 80 ms each of 400 Hz, 500 Hz, 600 Hz...: f32 [samples, 1]."""

    def steps(frames: int, rate_hz: int = 24_000) -> F32:
        frame_samples = rate_hz * 80 // 1000
        hz = np.repeat(400.0 + 100.0 * np.arange(frames), frame_samples)
        return (0.5 * np.sin(2 * np.pi * np.cumsum(hz) / rate_hz)).astype(np.float32)[:, None]

    return steps


@pytest.fixture
def pitches() -> Callable[..., list[int]]:
    """`pitches(pcm, rate_hz)`: the loudest frequency of the middle of each 80 ms, to 25 Hz."""

    def pitches(pcm: F32, rate_hz: int) -> list[int]:
        frame_samples = rate_hz * 80 // 1000
        margin = frame_samples // 4
        found = []
        for start in range(0, len(pcm) - frame_samples + 1, frame_samples):
            middle = pcm[start + margin : start + frame_samples - margin, 0]
            power = np.abs(np.fft.rfft(middle * np.hanning(len(middle)), rate_hz // 25))
            found.append(int(power.argmax()) * 25)
        return found

    return pitches
