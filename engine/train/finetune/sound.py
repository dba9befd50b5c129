"""Recordings as they are found on disk: read, judged, mixed down, resampled. Never changed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

from engine.codec.reference import normalise_loudness

F32 = NDArray[np.float32]
Use = Literal["reply", "user", "reference"]

SHORTEST_S = 0.3
LONGEST_S: dict[Use, float] = {"reply": 120.0, "user": 120.0, "reference": 30.0}
_SILENT = 10 ** (-60 / 20)  # peak of a recording that holds nothing
_CLIPPED = 0.999
_MOST_CLIPPED = 0.01  # share of the samples; above it the distortion would be learned
_NARROW_HZ = 16_000
_QUIET_DB = -40.0  # below the loudest moment: where speech has not begun or is over
_WINDOW_S = 0.02
_LEAD_S, _TAIL_S = 0.1, 0.3  # of silence that is kept around speech
_LEAST_CUT_S = 0.2


class SoundError(ValueError):
    """A recording that cannot be learned from; the message says why."""


@dataclass(frozen=True, slots=True)
class Recording:
    """`pcm` f32 mono [samples]; `notes` tell what is unusual about the file."""

    pcm: F32
    rate_hz: int
    notes: tuple[str, ...]

    @property
    def length_s(self) -> float:
        """Seconds of sound."""
        return len(self.pcm) / self.rate_hz


def recording_for(path: Path, use: Use, rate_hz: int) -> Recording:
    """A recording as it is learned from. Raises `SoundError`.

    Silence around a reply is left out. A reference has the loudness that the server gives to it.
    """
    recording = read_recording(path, rate_hz, LONGEST_S[use])
    if use == "user":
        return recording
    recording = without_silence(recording)
    if use == "reply":
        return recording
    return Recording(normalise_loudness(recording.pcm), rate_hz, recording.notes)


def read_recording(path: Path, rate_hz: int, longest_s: float) -> Recording:
    """Read WAV, FLAC, MP3 or Ogg as mono at `rate_hz`. Raises `SoundError`."""
    pcm, found_hz = _read(path, longest_s)
    length_s = len(pcm) / found_hz
    if length_s < SHORTEST_S:
        raise SoundError(f"{length_s:.2f} s long; at least {SHORTEST_S:g} s are needed")
    if length_s > longest_s:
        raise SoundError(f"longer than {longest_s:g} s; cut it into sentences")
    if not np.isfinite(pcm).all():
        raise SoundError("holds samples that are not numbers")
    mono = pcm.mean(axis=1, dtype=np.float32)
    if np.abs(mono).max() < _SILENT:
        raise SoundError("silent")
    clipped = float((np.abs(pcm) >= _CLIPPED).mean())
    if clipped > _MOST_CLIPPED:
        raise SoundError(f"clipped: {100 * clipped:.0f} % of the samples are at full scale")
    notes = _notes(pcm.shape[1], found_hz, rate_hz, clipped)
    return Recording(soxr.resample(mono, found_hz, rate_hz, quality="HQ"), rate_hz, notes)


def without_silence(recording: Recording) -> Recording:
    """Leave out long silence at both ends: a reply should start at once and end in time."""
    pcm, rate_hz = recording.pcm, recording.rate_hz
    window = int(_WINDOW_S * rate_hz)
    whole = pcm[: len(pcm) // window * window].reshape(-1, window)
    power = np.square(whole).mean(axis=1)
    loud = np.flatnonzero(power > power.max() * 10 ** (_QUIET_DB / 10)) * window
    start = max(0, int(loud[0] - _LEAD_S * rate_hz))
    end = min(len(pcm), int(loud[-1] + window + _TAIL_S * rate_hz))
    notes = list(recording.notes)
    lead_s, tail_s = start / rate_hz, (len(pcm) - end) / rate_hz
    if lead_s < _LEAST_CUT_S:
        start = 0
    else:
        notes.append(f"{lead_s:.1f} s of silence at its start are not learned")
    if tail_s < _LEAST_CUT_S:
        end = len(pcm)
    else:
        notes.append(f"{tail_s:.1f} s of silence at its end are not learned")
    return Recording(pcm[start:end], rate_hz, tuple(notes))


def _read(path: Path, longest_s: float) -> tuple[F32, int]:
    """Samples f32 [samples, channels], a second more than `longest_s` at most; and their rate."""
    if not path.exists():
        raise SoundError(f"there is no file {path}")
    if not path.is_file():
        raise SoundError(f"{path} is not a file")
    try:
        with soundfile.SoundFile(path) as file:
            frames = int((longest_s + 1) * file.samplerate)
            return file.read(frames, dtype="float32", always_2d=True), file.samplerate
    except (soundfile.SoundFileError, OSError) as error:
        raise SoundError(f"cannot be read as WAV, FLAC, MP3 or Ogg: {error}") from error


def _notes(channels: int, found_hz: int, rate_hz: int, clipped: float) -> tuple[str, ...]:
    notes = []
    if channels > 1:
        notes.append(f"{channels} channels are mixed to one")
    if found_hz != rate_hz:
        notes.append(f"resampled from {found_hz} to {rate_hz} Hz")
    if found_hz < min(_NARROW_HZ, rate_hz):
        notes.append(f"nothing above {found_hz // 2} Hz: the voice will sound like a telephone")
    if clipped > _MOST_CLIPPED / 10:
        notes.append(f"{100 * clipped:.1f} % of its samples are clipped")
    return tuple(notes)
