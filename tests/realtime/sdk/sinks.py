"""A sink whose clock the test moves."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engine.index_sound import read_ramp


class ClockSink:
    """Plays what was written as `advance` lets time pass; `stopped` has what each stop dropped."""

    def __init__(self) -> None:
        self.written = bytearray()  # since the last stop
        self.stopped: list[int] = []  # samples
        self.opened: tuple[int, int] | None = None
        self.is_closed = False
        self._heard = 0

    def open(self, rate_hz: int, channels: int) -> None:
        self.opened = rate_hz, channels

    def write(self, sound: bytes) -> None:
        assert not self.is_closed
        assert len(sound) % 2 == 0
        self.written += sound

    def heard_samples(self) -> int:
        return self._heard

    def stop(self) -> int:
        heard, self._heard = self._heard, 0
        self.stopped.append(len(self.written) // 2 - heard)
        self.written.clear()
        return heard

    def close(self) -> None:
        self.is_closed = True

    @property
    def written_ms(self) -> float:
        return len(self.written) / 48

    @property
    def indices(self) -> list[int]:
        """Which samples were written, of a server that speaks a ramp."""
        return read_ramp(np.frombuffer(bytes(self.written), "<i2")).tolist()

    def advance(self, ms: float) -> None:
        """Let time pass; what was not written in time is silence."""
        self._heard = min(self._heard + round(24 * ms), len(self.written) // 2)


class OwnClockSink(ClockSink):
    """Its clock moves by a step whenever it is asked; `on_heard` is told each position in ms."""

    def __init__(self, step_ms: float, on_heard: Callable[[float], None]) -> None:
        super().__init__()
        self._step_ms = step_ms
        self._on_heard = on_heard

    def heard_samples(self) -> int:
        self.advance(self._step_ms)
        self._on_heard(self._heard / 24)
        return self._heard
