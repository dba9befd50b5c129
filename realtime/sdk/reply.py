"""One response, as its listener sees it."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from realtime.protocol.messages import (
    ClientMessage,
    Interrupt,
    Played,
    ResponseCancel,
    ResponseDone,
    ResponseFlush,
    WordTime,
)


class Sender(Protocol):
    """What a reply needs of its session."""

    async def send(self, message: ClientMessage) -> None:
        """Send a message."""

    def is_stale(self, epoch: int | None) -> bool:
        """Whether sound of this epoch was interrupted."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Piece:
    """Sound that lasts `ms`."""

    data: bytes
    ms: float
    epoch: int | None


class Reply:
    """One response being spoken: iterate it for its sound, gap-free, in the session's format.

    That is runs of whole samples (16-bit mono unless another format was asked for), or one Opus
    packet at a time. `taken_ms` is how much of it was taken. `gaps` has `(at_ms, lost_ms)` for each
    place where a connection was away so long that sound is gone; there is none otherwise. `words`
    has `(word, start_ms, end_ms)`, estimated, where the client asked for them.

    The iteration ends with the response; `done` then says how. It raises `ResponseFailed` when the
    response failed and `StreamInterrupted` when the connection was lost.
    """

    def __init__(self, session: Sender, response_id: str) -> None:
        self.response_id = response_id
        self.done: ResponseDone | None = None
        self.taken_ms = 0.0
        self.gaps: list[tuple[float, float]] = []
        self.words: list[WordTime] = []
        self._received_ms = 0.0
        self._session = session
        self._sound: asyncio.Queue[_Piece | None] = asyncio.Queue()
        self._error: BaseException | None = None
        self._ended = asyncio.Event()
        self._started = asyncio.Event()
        self._feeding: asyncio.Task[None] | None = None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield sound as it arrives."""
        while (piece := await self._sound.get()) is not None:
            if not self._session.is_stale(piece.epoch):  # it came before an interrupt of any reply
                self.taken_ms += piece.ms
                yield piece.data
        self._sound.put_nowait(None)  # a second iteration ends as well
        if self._error:
            raise self._error

    async def flush(self) -> None:
        """Have the text so far spoken to its end, though more may follow."""
        await self._started.wait()
        await self._session.send(ResponseFlush(m=1, response_id=self.response_id))

    async def interrupt(self, played_ms: float | None = None) -> ResponseDone | None:
        """Barge in: stop this and every queued response; the history keeps what was heard.

        `played_ms` is how far the listener got; without it, what was taken from the iteration.
        """
        await self._started.wait()
        self._drop_sound()
        ms = self.position_ms(self.taken_ms) if played_ms is None else played_ms
        await self._session.send(Interrupt(m=1, played=Played(response_id=self.response_id, ms=ms)))
        return await self.wait()

    async def cancel(self) -> ResponseDone | None:
        """Stop this response only."""
        await self._started.wait()
        self._drop_sound()
        await self._session.send(ResponseCancel(m=1, response_id=self.response_id))
        return await self.wait()

    async def wait(self) -> ResponseDone | None:
        """Wait for the end without taking the sound; raises as the iteration does."""
        await self._ended.wait()
        if self._error:
            raise self._error
        return self.done

    def position_ms(self, sound_ms: float) -> float:
        """Return where in the response that much of its sound ends: lost sound counts as well."""
        return sound_ms + sum(lost_ms for at_ms, lost_ms in self.gaps if at_ms < sound_ms)

    def _drop_sound(self) -> None:
        while not self._sound.empty():
            self._sound.get_nowait()
        if self.ended:
            self._sound.put_nowait(None)

    @property
    def ended(self) -> bool:
        """Whether no more sound will come."""
        return self._ended.is_set()

    def fed_by(self, task: asyncio.Task[None]) -> None:
        """Note which task sends the text; it is cancelled when the response ends before it."""
        self._feeding = task

    def start(self) -> None:
        """Note that `response.start` is sent; for the session."""
        self._started.set()

    def take(
        self, pieces: Sequence[bytes], ms: float, *, lost_ms: float, epoch: int | None
    ) -> None:
        """Add sound that lasts `ms` in all, after `lost_ms` that will not come; for the session."""
        if lost_ms:
            self.gaps.append((self._received_ms, lost_ms))
        self._received_ms += ms
        for piece in pieces:
            self._sound.put_nowait(_Piece(piece, ms / len(pieces), epoch))

    def end(self, done: ResponseDone | None, error: BaseException | None = None) -> None:
        """End the response, once; for the session."""
        if self.ended:
            return
        self.done, self._error = done, error
        self._started.set()
        self._ended.set()
        self._sound.put_nowait(None)
        if self._feeding and self._feeding is not asyncio.current_task():
            self._feeding.cancel()
