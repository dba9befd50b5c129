"""Speakers made from the teacher's one voice, in the domain of its vocoder.

The teacher's network gives, for every 12.5 ms, a harmonic gain, a phase, a noise gain, a free part
and F0. Scaling F0 and warping the frequency axis (the length of the vocal tract) before the vocoder
makes other speakers at no cost in intelligibility.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]

BINS = 601  # of 20 Hz
BIN_HZ = 20.0
VOICED_HZ = 40.0
SILENT_LOG_GAIN = -20.0
DB_PER_NEPER = 8.686


@dataclasses.dataclass(frozen=True, slots=True)
class Speaker:
    """How one speaker differs from the teacher: all ratios are 1 for the teacher itself."""

    name: str
    pitch: float = 1.0
    formants: float = 1.0  # below 1: a longer vocal tract
    intonation: float = 1.0  # exponent of F0 around its mean
    tilt_db_per_octave: float = 0.0
    keeps_free_part: bool = False  # warped, its phases no longer fit: then it becomes noise


@dataclasses.dataclass(frozen=True, slots=True)
class Spectrum:
    """What the teacher's network returns: five arrays f32 [601, frames] and F0 f32 [frames]."""

    harmonic: F32
    phase: F32
    noise: F32
    free: F32
    free_phase: F32
    f0_hz: F32


SHIPPED = (
    Speaker("heart", keeps_free_part=True),
    Speaker("alto", pitch=0.86, formants=0.94, intonation=1.1),
    Speaker("bright", pitch=1.20, formants=1.10),
    Speaker("male", pitch=0.58, formants=0.86),
)
"""The voices that ship with the project."""


def neighbours(speaker: Speaker, count: int, seed: int) -> list[Speaker]:
    """`count` random speakers around one, so that the models learn voices and not four names."""
    draws = np.random.default_rng(seed)

    def near(value: float, low: float, high: float) -> float:
        return value * float(draws.uniform(low, high))

    return [
        Speaker(
            f"{speaker.name}-{index}",
            pitch=near(speaker.pitch, 0.93, 1.07),
            formants=near(speaker.formants, 0.965, 1.035),
            intonation=near(speaker.intonation, 0.9, 1.15),
            tilt_db_per_octave=float(draws.uniform(-1, 1)),
        )
        for index in range(1, count + 1)
    ]


def disguise(spectrum: Spectrum, speaker: Speaker) -> Spectrum:
    """Turn what the teacher would say into what `speaker` says."""
    octaves = np.log2(np.maximum(np.arange(BINS) * BIN_HZ, 100.0) / 1000.0)
    tilt = (speaker.tilt_db_per_octave * octaves / DB_PER_NEPER).astype(np.float32)[:, None]
    harmonic = _warp(spectrum.harmonic, speaker.formants) + tilt
    noise = _warp(spectrum.noise, speaker.formants) + tilt
    free = _warp(spectrum.free, speaker.formants) + tilt
    if not speaker.keeps_free_part:
        # It carries the unvoiced consonants and must not be lost.
        noise = np.logaddexp(2 * noise, 2 * free) / 2
        free = np.full_like(free, SILENT_LOG_GAIN)
    return Spectrum(
        harmonic=harmonic,
        phase=_warp_phase(spectrum.phase, speaker.formants),
        noise=noise,
        free=free,
        free_phase=spectrum.free_phase,
        f0_hz=_intone(spectrum.f0_hz, speaker),
    )


def _intone(f0_hz: F32, speaker: Speaker) -> F32:
    voiced = f0_hz > VOICED_HZ
    if not voiced.any():
        return f0_hz
    mean = np.exp(np.log(f0_hz[voiced]).mean())
    moved = mean * speaker.pitch * (np.maximum(f0_hz, 1) / mean) ** speaker.intonation
    return np.where(voiced, moved, 0).astype(np.float32)


def _warp(x: F32, scale: float) -> F32:
    if scale == 1:
        return x
    source = np.minimum(np.arange(BINS) / scale, BINS - 1)
    low = np.minimum(source.astype(int), BINS - 2)
    share = (source - low).astype(np.float32)[:, None]
    return x[low] * (1 - share) + x[low + 1] * share


def _warp_phase(theta: F32, scale: float) -> F32:
    # A phase cannot be interpolated across its jumps.
    if scale == 1:
        return theta
    source = np.minimum(np.arange(BINS) / scale, BINS - 1)
    return theta[np.rint(source).astype(int)]
