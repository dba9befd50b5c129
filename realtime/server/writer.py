"""What a session sends, over whichever socket there is: in order, each piece encoded once."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Executor
from typing import Protocol

from engine.api import ModelInfo
from realtime.protocol.codec import Encoding, encode
from realtime.protocol.frames import AudioFrame
from realtime.protocol.messages import (
    AudioFormat,
    Gap,
    ResponseAudio,
    Resume,
    ServerMessage,
    SessionStarted,
)
from realtime.server.audio_stream import bytes_per_s
from realtime.server.credentials import Caller
from realtime.server.outbox import Closing, Control, Outbox, Piece
from realtime.session.effects import SendAudio
from realtime.session.ring import ReplayRing, Sent, SentFrame


class Socket(Protocol):
    """What a session needs of the connection that it speaks over now."""

    @property
    def encoding(self) -> Encoding: ...
    @property
    def caller(self) -> Caller: ...

    def limit(self, bytes_per_s: int) -> None:
        """Say how much sound there is, so that little of it lies in buffers."""

    async def room(self) -> None:
        """Wait until the socket takes a message, or is gone."""

    async def send(self, data: str | bytes) -> bool:
        """Send; false when the socket is gone."""

    async def close(self, code: int, reason: str) -> None:
        """Close once everything before is sent."""

    def force_close(self, code: int, reason: str) -> None:
        """Close although the peer takes nothing."""


class Owner(Protocol):
    """What the writer tells its session."""

    def sent(self, piece: Piece) -> None:
        """A piece of sound is on the wire."""

    def too_slow(self, socket: Socket) -> None:
        """The socket has taken nothing for too long."""

    async def close(self, socket: Socket, closing: Closing) -> None:
        """Everything before the end is sent."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Again:
    """Encoded; of a stream's sound, or (None) a control message."""

    data: str | bytes
    stream: int | None = None


class Writer:
    """One task sends, whichever socket there is, so that nothing is encoded twice or overtaken.

    What has been sent stays in a ring for a while; a newer socket begins with what its client
    missed. `patience_s` is how long a socket may take nothing.
    """

    def __init__(
        self, owner: Owner, socket: Socket, model: ModelInfo, pool: Executor, patience_s: float
    ) -> None:
        self.socket: Socket | None = socket
        self._owner = owner
        self._encoding = socket.encoding
        self._model = model
        self._pool = pool
        self._patience_s = patience_s
        self._audio: AudioFormat | None = None
        self._outbox = Outbox(socket.encoding, model)
        self._ring = ReplayRing()
        self._first: deque[_Again] = deque()  # what a newer socket carries before anything else
        self._lost: Socket | None = None  # takes nothing any more; its reader will say so

    @property
    def queued_bytes(self) -> int:
        """Size of what is not sent yet."""
        return self._outbox.queued_bytes

    def use_format(self, audio: AudioFormat) -> None:
        """Speak in this format, and keep little of it in the socket's buffers."""
        self._audio = audio
        if self.socket:
            self.socket.limit(bytes_per_s(audio))

    def put(self, message: ServerMessage) -> None:
        """Queue a control message."""
        self._outbox.put(message)

    def put_audio(self, sound: SendAudio) -> None:
        """Queue sound."""
        assert self._audio
        self._outbox.put_audio(sound, self._audio)

    def drop(self, stream: int) -> None:
        """Send nothing more of a stream's sound, nor any of it again."""
        self._outbox.drop(stream)
        self._ring.drop(stream)
        self._first = deque(sent for sent in self._first if sent.stream != stream)

    def close(self, code: int, reason: str) -> None:
        """Close the socket once everything before is sent."""
        self._outbox.close(code, reason)

    def missed(self, resume: Resume) -> tuple[list[Sent], tuple[Gap, ...]]:
        """Return what a client lacks and what of it is gone; raises `ProtocolError`."""
        return self._ring.missed(resume)

    def attach(self, socket: Socket, started: SessionStarted, missed: Iterable[Sent]) -> None:
        """Go on over a newer socket."""
        self.socket = socket
        answer = _Again(encode(started, self._encoding))
        self._first = deque([answer, *(self._again(sent) for sent in missed)])
        if self._audio:
            socket.limit(bytes_per_s(self._audio))
        self._outbox.wake()

    def detach(self) -> None:
        """Send nothing until there is another socket."""
        self.socket = None
        self._first.clear()
        self._outbox.stay_open()

    async def run(self) -> None:
        """Send what there is, for ever."""
        while True:
            socket = await self._socket_with_room()
            if self._first:
                await self._send(socket, self._first.popleft().data)
                continue
            match self._outbox.take():
                case Control(data, n):
                    if n is not None:
                        self._ring.add_message(n, data)
                    await self._send(socket, data)
                case Piece() as piece:
                    await self._send_piece(socket, piece)
                case Closing() as closing:
                    await self._owner.close(socket, closing)

    async def _socket_with_room(self) -> Socket:
        """Wait until there is something to send and a socket that takes it."""
        while True:
            socket = self.socket
            if socket is None or socket is self._lost or not self._has_something:
                await self._outbox.news()
                continue
            try:
                async with asyncio.timeout(self._patience_s):
                    await socket.room()
            except TimeoutError:
                if socket is self.socket:
                    self._owner.too_slow(socket)
            if socket is self.socket and self._has_something:
                return socket

    @property
    def _has_something(self) -> bool:
        return bool(self._first) or self._outbox.has_entries

    async def _send(self, socket: Socket, data: str | bytes) -> None:
        if not await socket.send(data):
            self._lost = socket

    async def _send_piece(self, socket: Socket, piece: Piece) -> None:
        frame = await asyncio.get_running_loop().run_in_executor(
            self._pool, piece.stream.encode, piece.pcm, piece.flags, piece.epoch
        )
        if piece.stream.dropped:
            return
        if frame:
            length_ms = 1000 * len(piece.pcm) / self._model.rate_hz
            self._ring.add_frame(piece.response_id, frame, length_ms)
            data = self._on_the_wire(frame, piece.response_id)
            if socket is self.socket:
                await self._send(socket, data)
            elif self.socket:  # its replay was drawn up before this frame was there
                self._first.append(_Again(data, frame.stream))
        self._outbox.sent(piece)
        self._owner.sent(piece)

    def _again(self, sent: Sent) -> _Again:
        if isinstance(sent, SentFrame):
            data = self._on_the_wire(sent.frame, sent.response_id)
            return _Again(data, sent.frame.stream)
        return _Again(sent.data)

    def _on_the_wire(self, frame: AudioFrame, response_id: str) -> str | bytes:
        assert self._audio
        if self._audio.transport == "binary":
            return frame.pack()
        message = ResponseAudio(
            response_id=response_id,
            stream=frame.stream,
            seq=frame.seq,
            pts=frame.pts,
            samples=frame.samples,
            epoch=frame.epoch,
            flags=frame.flags,
            data=frame.payload,
        )
        return encode(message, self._encoding)
