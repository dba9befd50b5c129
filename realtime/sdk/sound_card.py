"""The loudspeaker of this machine, through the package `sounddevice`, which is optional."""

from __future__ import annotations

import array
import threading
import time
from collections import deque
from typing import Any, Final

from realtime.sdk.errors import PlaybackUnavailable

_LATENCY_S: Final = 0.05  # with less a busy interpreter misses its turn, with more silence is late
_FADE_S: Final = 0.008
_SAMPLE_BYTES: Final = 2


class SoundCard:
    """A sink of `Speaker`. `device` is one that `python -m sounddevice` lists, by name or number.

    The audio thread asks for blocks; when each will leave the loudspeaker it says itself.
    """

    def __init__(self, device: int | str | None = None) -> None:
        self._device = device
        self._lock = threading.Lock()
        self._stream: Any = None
        self._waiting = bytearray()
        self._fading = bytearray()  # the end of what was stopped; it does not count
        self._handed = 0  # samples given to the device
        self._heard = 0
        self._blocks: deque[tuple[float, int, int]] = deque()  # audible at, first sample, samples

    def open(self, rate_hz: int, channels: int) -> None:
        """Open the device; raises `PlaybackUnavailable`."""
        sounddevice = _sounddevice()
        self._rate_hz = rate_hz
        self._frame_bytes = _SAMPLE_BYTES * channels
        try:
            self._stream = sounddevice.RawOutputStream(
                samplerate=rate_hz,
                channels=channels,
                dtype="int16",
                device=self._device,
                latency=_LATENCY_S,
                callback=self._supply,
            )
            self._stream.start()
        except (sounddevice.PortAudioError, ValueError) as error:
            which = "the default device" if self._device is None else f"device {self._device!r}"
            raise PlaybackUnavailable(
                f"{which} does not play {rate_hz} Hz with {channels} channels: {error}; "
                "`python -m sounddevice` lists the devices"
            ) from error

    def write(self, sound: bytes) -> None:
        """Play whole samples after those written before."""
        with self._lock:
            self._waiting += sound

    def heard_samples(self) -> int:
        """Return how many of the samples written have left the loudspeaker."""
        with self._lock:
            return self._heard_now()

    def stop(self) -> int:
        """Fade out within some milliseconds and forget the rest; returns what was heard."""
        with self._lock:
            heard = self._heard_now()
            fade_bytes = int(self._rate_hz * _FADE_S) * self._frame_bytes
            self._fading = _faded(self._waiting[:fade_bytes], self._frame_bytes)
            self._waiting.clear()
            self._blocks.clear()
            self._handed = self._heard = 0
            return heard

    def close(self) -> None:
        """Let go of the device."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _supply(self, out: Any, samples: int, timing: Any, status: Any) -> None:
        """Fill a block of the device; runs on its thread."""
        delay_s = timing.outputBufferDacTime - timing.currentTime
        if delay_s <= 0:  # some drivers do not say
            delay_s = float(self._stream.latency) if self._stream else _LATENCY_S
        with self._lock:
            block = _taken(self._fading, len(out))
            sound = _taken(self._waiting, len(out) - len(block))
            if sound:
                count = len(sound) // self._frame_bytes
                faded_s = len(block) / self._frame_bytes / self._rate_hz
                self._blocks.append((time.monotonic() + delay_s + faded_s, self._handed, count))
                self._handed += count
        out[:] = (block + sound).ljust(len(out), b"\0")

    def _heard_now(self) -> int:
        now_s = time.monotonic()
        while self._blocks and self._blocks[0][0] <= now_s:
            audible_s, first, count = self._blocks[0]
            heard = first + min(count, round((now_s - audible_s) * self._rate_hz))
            self._heard = max(self._heard, heard)
            if heard < first + count:
                break
            self._blocks.popleft()
        return self._heard


def _taken(sound: bytearray, size: int) -> bytes:
    piece = bytes(sound[:size])
    del sound[:size]
    return piece


def _faded(sound: bytes | bytearray, frame_bytes: int) -> bytearray:
    """Return the sound, falling to silence at its end."""
    samples = array.array("h", bytes(sound))
    channels = frame_bytes // _SAMPLE_BYTES
    count = len(samples) // channels
    for at, value in enumerate(samples):
        samples[at] = int(value * (count - 1 - at // channels) / count)
    return bytearray(samples.tobytes())


def _sounddevice() -> Any:
    try:
        import sounddevice
    except ImportError:
        text = "playing needs the package sounddevice: pip install moss-realtime[play]"
        raise PlaybackUnavailable(text) from None
    except OSError as error:  # the package is there, the library that it wraps is not
        text = f"playing needs PortAudio ({error}); on Debian: apt-get install libportaudio2"
        raise PlaybackUnavailable(text) from None
    return sounddevice
