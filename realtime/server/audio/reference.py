"""Decoding of a reference recording (a voice) that a stranger uploaded."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import soundfile
import soxr

from realtime.server.audio.level import F32

MIN_S, MAX_S = 1.0, 30.0
_MAX_CHANNELS = 2
_RATES_HZ = (8_000, 192_000)
_CONTAINERS = {"WAV", "WAVEX", "FLAC", "OGG", "MP3"}
_SILENCE = 1e-4  # -80 dB of full scale


class ReferenceError(ValueError):
    """The recording cannot be used; the message says why and what would be accepted."""


def decode_reference(
    data: bytes, rate_hz: int, *, min_s: float = MIN_S, max_s: float = MAX_S
) -> F32:
    """Decode WAV, FLAC, MP3 or Ogg (Vorbis, Opus) to f32 mono `[samples]` at `rate_hz`.

    Stereo is averaged. Whatever the file claims, no more than a second beyond the longest accepted
    recording is decoded. Raises `ReferenceError` for anything but `min_s` to `max_s` seconds of
    sound in one or two channels.
    """
    if not data:
        raise ReferenceError("the audio is empty (0 bytes)")
    pcm, source_hz = _read(data, max_s)
    seconds = len(pcm) / source_hz
    if seconds > max_s:
        raise ReferenceError(f"the audio is longer than {max_s:g} s; send {min_s:g} to {max_s:g} s")
    if seconds < min_s:
        raise ReferenceError(f"the audio lasts {seconds:.2f} s; send {min_s:g} to {max_s:g} s")
    if not np.isfinite(pcm).all():
        raise ReferenceError("the audio holds samples that are not numbers")
    if np.abs(pcm).max() < _SILENCE:
        raise ReferenceError("the audio is silent")
    return _mono(pcm, source_hz, rate_hz)


def load_mono(path: Path, rate_hz: int) -> F32:
    """Read one of our own recordings as f32 mono `[samples]` at `rate_hz`."""
    pcm, source_hz = soundfile.read(path, dtype="float32", always_2d=True)
    return _mono(pcm, source_hz, rate_hz)


def _mono(pcm: F32, source_hz: int, rate_hz: int) -> F32:
    mono = pcm.mean(axis=1, dtype=np.float32)
    resampled: F32 = soxr.resample(mono, source_hz, rate_hz, quality="HQ")
    return resampled


class _ForwardFile(soundfile.SoundFile):  # type: ignore[misc]
    """Read front to back, as the length in the header of a streamed file is unknown or a guess."""

    def seekable(self) -> bool:
        return False


def _read(data: bytes, max_s: float) -> tuple[F32, int]:
    try:
        with _ForwardFile(io.BytesIO(data)) as file:
            _check_header(file)
            pcm: F32 = file.read(
                int((max_s + 1) * file.samplerate), dtype="float32", always_2d=True
            )
            return pcm, file.samplerate
    except soundfile.LibsndfileError as error:
        raise ReferenceError(
            "the audio cannot be decoded as WAV, FLAC, MP3 or Ogg "
            f"({len(data)} bytes; {error.error_string.rstrip('.')})"
        ) from error


def _check_header(file: _ForwardFile) -> None:
    if file.format not in _CONTAINERS:
        raise ReferenceError(f"the audio is {file.format}; send WAV, FLAC, MP3 or Ogg")
    if file.channels > _MAX_CHANNELS:
        raise ReferenceError(f"the audio has {file.channels} channels; send mono or stereo")
    low_hz, high_hz = _RATES_HZ
    if not low_hz <= file.samplerate <= high_hz:
        raise ReferenceError(
            f"the audio's sample rate is {file.samplerate} Hz; send {low_hz} to {high_hz} Hz"
        )
