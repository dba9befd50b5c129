"""The engine as the event loop sees it: commands out, each row's events to its listener."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import logging
from collections.abc import Callable
from typing import Literal

import numpy as np

from engine.api import (
    Cancel,
    CancelEncode,
    Command,
    Counts,
    Done,
    Encode,
    Encoded,
    Event,
    F32Samples,
    Failed,
    Frames,
    ModelInfo,
    Open,
    Parked,
    Ready,
    Refused,
    Resumed,
    Segment,
    Stats,
    U16Codes,
)
from realtime.server.engine_process import EngineLink
from realtime.server.progress import Progress
from realtime.server.row_log import RowLog
from realtime.session.restarts import RESTARTED, Restarts

logger = logging.getLogger(__name__)

RowEvent = Refused | Frames | Parked | Resumed | Segment | Done
Listener = Callable[[RowEvent], None]
EncodeListener = Callable[[Encoded | Failed], None]
ENCODE_PIECE_SAMPLES = 1 << 16
RESTART_RETRY_MS = 2000


class EngineError(RuntimeError):
    """The engine cannot do what was asked; the message is safe to show."""


@dataclasses.dataclass(slots=True)
class _Encoding:
    """An encode stream, with all that the engine was given of it: the next one may need it."""

    listener: EncodeListener
    given: list[Encode] = dataclasses.field(default_factory=list)
    frames: int = 0  # that the listener has
    restarts: Restarts = dataclasses.field(default_factory=Restarts)

    def unheard(self, event: Encoded) -> Encoded:
        """The part of an event that the listener does not have."""
        known = max(0, self.frames - event.first_frame)
        codes = event.codes[known:]
        return dataclasses.replace(event, first_frame=event.first_frame + known, codes=codes)


class EngineBridge:
    """Owns the engine's life. Everything is called, and every listener runs, on the event loop."""

    def __init__(self, link: EngineLink, restart_wait_s: float = 30.0) -> None:
        self.models: tuple[ModelInfo, ...] = ()
        self.stats: Stats | None = None
        self.rows = RowLog()
        self.on_stats: Callable[[Stats], None] = lambda stats: None
        self._link = link
        self._restart_wait_s = restart_wait_s
        self._loop: asyncio.AbstractEventLoop
        self._ids = itertools.count(1)
        self._listeners: dict[int, Listener] = {}
        self._encodings: dict[int, _Encoding] = {}
        self._ready = asyncio.Event()
        self._startup_error = ""
        self._up = False
        self._progress: Progress

    def start(self) -> None:
        """Start the engine; `ready` waits for it."""
        self._loop = asyncio.get_running_loop()
        self._link.start(self._from_engine_thread)

    async def stop(self, drain_s: float = 0.0) -> None:
        """Let rows finish for at most `drain_s`, then stop the engine and wait for its end."""
        await asyncio.to_thread(self._link.stop, drain_s)
        self._up = False

    async def ready(self) -> None:
        """Wait until the engine first serves. Raises `EngineError` when it died before that."""
        await self._ready.wait()
        if self._startup_error:
            raise EngineError(f"the engine did not start: {self._startup_error}")

    @property
    def up(self) -> bool:
        """Whether an engine that is warm is running now."""
        return self._up

    @property
    def busy(self) -> bool:
        """Whether any row or encoding is under way."""
        return bool(self._listeners or self._encodings)

    def progress_age_s(self) -> float:
        """Seconds since the engine last showed that it moves; infinite before it is up."""
        return self._progress.age_s() if self._up else float("inf")

    def new_id(self) -> int:
        """Return an id for a row or an encode stream, never used before."""
        return next(self._ids)

    def send(self, command: Command) -> None:
        """Pass a command on.

        While the engine restarts, live rows wait for it and others are answered with `Refused`.
        """
        if isinstance(command, Open) and not self._up and command.lane == "live" and self.models:
            self.reopen(command)
            return
        self._note_command(command)
        if isinstance(command, Open) and not self._up:
            message = "the engine is starting; try again shortly"
            refused = Refused(command.row, "overloaded", message, RESTART_RETRY_MS)
            self._loop.call_soon(self._deliver, refused)
            return
        if isinstance(command, Encode) and command.stream in self._encodings:
            self._encodings[command.stream].given.append(command)
        self._link.submit(command)

    def reopen(self, command: Open) -> None:
        """Open a row although the engine may just have died: it waits for the next one.

        Refused as `engine_restarted` when none comes.
        """
        self._note_command(command)
        if self._link.restarts:
            self._link.submit(command)
            self._loop.call_later(self._restart_wait_s, self._give_up_row, command.row)
        else:
            self._loop.call_soon(self._give_up_row, command.row)

    def _note_command(self, command: Command) -> None:
        if isinstance(command, Open):
            models = (model for model in self.models if model.name == command.model)
            self.rows.opened(command, next(models, None))
        else:
            self.rows.command(command)

    def _give_up_row(self, row: int) -> None:
        if row in self._listeners and not self._up:
            self._link.submit(Cancel(row))
            self._deliver(Refused(row, RESTARTED, "the engine did not come back", 0))

    def listen(self, row: int, callback: Listener) -> None:
        """Call `callback` with every event of the row, up to its `Done` or `Refused`."""
        self._listeners[row] = callback

    def unlisten(self, row: int) -> None:
        """Stop calling; needed only for a row whose end is of no interest."""
        self._listeners.pop(row, None)

    async def encode(
        self, pcm: F32Samples, loudness: Literal["keep", "normalise"], model: str | None = None
    ) -> U16Codes:
        """Encode f32 mono `[samples]` at the model's rate to codes u16 `[F, n_vq]`.

        Raises `EngineError`.
        """
        if not self._up:
            raise EngineError("the engine is starting; try again shortly")
        stream, name = self.new_id(), model or self.models[0].name
        events: asyncio.Queue[Encoded | Failed] = asyncio.Queue()
        self.listen_encoding(stream, events.put_nowait)
        for start in range(0, max(1, len(pcm)), ENCODE_PIECE_SAMPLES):
            piece = pcm[start : start + ENCODE_PIECE_SAMPLES]
            end = start + ENCODE_PIECE_SAMPLES >= len(pcm)
            self.send(Encode(stream, name, piece, end, loudness))
        codes: list[U16Codes] = []
        try:
            while True:
                event = await events.get()
                if isinstance(event, Failed):
                    raise EngineError(event.error)
                codes.append(event.codes)
                if event.end:
                    return np.concatenate(codes)
        except asyncio.CancelledError:
            self.cancel_encoding(stream)
            raise

    def listen_encoding(self, stream: int, callback: EncodeListener) -> None:
        """Call `callback` with what becomes of an encode stream, up to its end or its failure."""
        self._encodings[stream] = _Encoding(callback)

    def cancel_encoding(self, stream: int) -> None:
        """Forget an encode stream."""
        if self._encodings.pop(stream, None):
            self._link.submit(CancelEncode(stream))

    def _from_engine_thread(self, event: Event) -> None:
        self._loop.call_soon_threadsafe(self._on_event, event)

    def _on_event(self, event: Event) -> None:
        match event:
            case Stats():
                self._progress.note(event)
                self.stats = event
                self.on_stats(event)
            case Ready():
                self.models, self._up = event.models, True
                self._progress = Progress(self._loop.time)
                self._ready.set()
            case Encoded():
                self._on_encoded(event)
            case Failed(what="process"):
                self._on_death(event.error)
            case Failed(what="encode"):
                self._on_encoding_failed(int(event.id), event.error)
            case Failed():
                logger.warning("engine what=%s id=%s error=%r", event.what, event.id, event.error)
            case _:
                self._deliver(event)

    def _deliver(self, event: RowEvent) -> None:
        self.rows.event(event)
        ended = isinstance(event, Done | Refused)
        listener = self._listeners.pop(event.row, None) if ended else self._listeners.get(event.row)
        if listener:
            listener(event)

    def _on_encoded(self, event: Encoded) -> None:
        encoding = self._encodings.get(event.stream)
        if encoding is None:
            return
        if event.end:
            del self._encodings[event.stream]
        unheard = encoding.unheard(event)
        encoding.frames += len(unheard.codes)
        if len(unheard.codes) or event.end:
            encoding.listener(unheard)

    def _on_encoding_failed(self, stream: int, error: str) -> None:
        if encoding := self._encodings.pop(stream, None):
            encoding.listener(Failed("encode", str(stream), error))

    def _on_death(self, reason: str) -> None:
        """Tell the rows, whose listeners have what is needed to go on, and encode anew."""
        self._up, self.stats = False, None
        if not self.models:
            self._startup_error = reason
            self._ready.set()
        error = f"{RESTARTED}: {reason}"
        self.rows.engine_died()
        for row in list(self._listeners):
            # An `Open` sent between the death and this news went to the next engine.
            self._link.submit(Cancel(row))
            self._deliver(Done(row, "failed", error, Counts()))
        for stream, encoding in list(self._encodings.items()):
            self._link.submit(CancelEncode(stream))
            if self._link.restarts and encoding.restarts.allow(encoding.frames):
                for command in encoding.given:
                    self._link.submit(command)
                self._loop.call_later(self._restart_wait_s, self._give_up_encoding, stream, error)
            else:
                self._on_encoding_failed(stream, error)

    def _give_up_encoding(self, stream: int, error: str) -> None:
        if stream in self._encodings and not self._up:
            self._link.submit(CancelEncode(stream))
            self._on_encoding_failed(stream, error)
