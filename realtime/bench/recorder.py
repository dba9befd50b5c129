"""Notes what happens to one response while it happens; gives a `Trip` at its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import numpy as np

from realtime.bench.trip import Ending, Piece, ServerClock, Trip
from realtime.bench.workload import PREFILL_TOKENS
from realtime.protocol.messages import ResponseDone
from realtime.sdk.errors import ServerRefused

BUSY = frozenset({429, 503})
"""HTTP statuses of a server that has no place now."""

AUDIBLE = 10 ** (-50 / 20) * 32767
"""-50 dBFS as a level of 16-bit samples."""


class Recorder:
    """One response. `now_s` is the clock of the run."""

    def __init__(self, now_s: Callable[[], float], *, slow_reader: bool = False) -> None:
        self.pieces: list[Piece] = []
        self.cancel_s: float | None = None
        self.vanished = False
        self.begun = asyncio.Event()
        self._now_s = now_s
        self._slow_reader = slow_reader
        self._sent_s = now_s()
        self._audible_s: float | None = None
        self._first_text_s: float | None = None
        self._speakable_s: float | None = None
        self._tokens = 0
        self._starved: list[tuple[float, float]] = []
        self._starved_since_s: float | None = None
        self._last_sound_s: float | None = None

    def text(self, delta: str, *, last: bool) -> None:
        """A delta was sent."""
        now_s = self._now_s()
        self._tokens += len(delta.split())
        if self._first_text_s is None:
            self._first_text_s = now_s
        if self._speakable_s is None and (last or self._tokens >= PREFILL_TOKENS):
            self._speakable_s = now_s

    @property
    def received_s(self) -> float:
        """Length of the sound that came so far."""
        return sum(piece.duration_s for piece in self.pieces)

    def played_s(self, at_s: float) -> float:
        """How far a player is that began with the first piece and was never held up."""
        return min(at_s - self.pieces[0].at_s, self.received_s) if self.pieces else 0.0

    def sound(self, samples: bytes, duration_s: float) -> None:
        """Sound came: whole 16-bit samples."""
        now_s = self._now_s()
        self._last_sound_s = now_s
        if not samples:
            return
        self.pieces.append(Piece(now_s, duration_s))
        self.begun.set()
        if self._audible_s is None:
            levels = np.abs(np.frombuffer(samples, "<i2").astype(np.int32))
            if levels.max() > AUDIBLE:
                self._audible_s = now_s

    def stale_sound(self) -> None:
        """Sound came that was cancelled and is not heard."""
        self._last_sound_s = self._now_s()

    def starves(self, begins: bool) -> None:
        """The server waits for text, or no longer does."""
        now_s = self._now_s()
        if begins:
            self._starved_since_s = now_s
        elif self._starved_since_s is not None:
            self._starved.append((self._starved_since_s, now_s))
            self._starved_since_s = None

    def cancelled(self) -> None:
        """The client asks to stop."""
        self.cancel_s = self._now_s()

    def done(self, done: ResponseDone) -> Trip:
        """The server says that it is over, and how it was on its clock."""
        metrics = done.metrics
        refused = done.error is not None and done.error.code == "overloaded"
        server = ServerClock(
            queue_ms=metrics.queue_ms,
            ttfa_ms=metrics.ttfa_ms,
            text_to_audio_ms=metrics.text_to_audio_ms,
            rtf=metrics.rtf,
            starved_ms=metrics.starved_ms,
        )
        error = f"{done.error.code}: {done.error.message}" if done.error else ""
        ending: Ending = "refused" if refused else done.status
        return self.end(ending, error, done.audio_ms, done.heard_ms, server)

    def refused(self, error: ServerRefused) -> Trip:
        """There was not even a session."""
        busy = error.status in BUSY or error.code == "overloaded"
        return self.end("refused" if busy else "failed", str(error))

    def end(
        self,
        ending: Ending,
        error: str = "",
        made_ms: float | None = None,
        heard_ms: float | None = None,
        server: ServerClock | None = None,
    ) -> Trip:
        """It is over. A success without sound is a failure."""
        if ending in ("completed", "incomplete") and not self.pieces:
            ending, error = "failed", "empty: no sound came"
        self.starves(False)
        return Trip(
            sent_s=self._sent_s,
            ended_s=self._now_s(),
            ending=ending,
            pieces=tuple(self.pieces),
            error=error,
            audible_s=self._audible_s,
            slow_reader=self._slow_reader,
            first_text_s=self._first_text_s,
            speakable_s=self._speakable_s,
            starved=tuple(self._starved),
            cancel_s=self.cancel_s,
            last_sound_s=self._last_sound_s,
            made_ms=made_ms,
            heard_ms=heard_ms,
            server=server,
        )
