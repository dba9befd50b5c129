"""A session of ours over one socket, with nothing between the bench and the wire.

The SDK would take up a lost connection, and reads as fast as it can; here clients die and dawdle.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from realtime.bench.recorder import Recorder
from realtime.bench.trip import Ending, Trip
from realtime.bench.workload import Line
from realtime.protocol.frames import is_audio
from realtime.protocol.messages import (
    AudioRequest,
    ClientMessage,
    Error,
    Flow,
    ResponseDone,
    ResponseResumed,
    ResponseStalled,
    ResponseStart,
    ServerMessage,
    SessionClose,
    SessionStart,
)
from realtime.sdk.core import ClientCore, Sound
from realtime.sdk.errors import ServerRefused
from realtime.sdk.link import Address


class SpeechSocket:
    """`await SpeechSocket.open(...)`; one response at a time."""

    def __init__(self, websocket: ClientConnection, now_s: Callable[[], float]) -> None:
        self._websocket = websocket
        self._now_s = now_s
        self._core = ClientCore()
        self._ids = itertools.count(1)

    @classmethod
    async def open(
        cls,
        address: Address,
        voice: str | None,
        now_s: Callable[[], float],
        flow: Flow | None = None,
    ) -> SpeechSocket:
        """Connect and start a session. Raises `ServerRefused`."""
        socket = cls(await address.dial(), now_s)
        audio = AudioRequest(codec="pcm_s16le")
        start = SessionStart(m=1, voice=voice, audio=audio, flow=flow)
        try:
            await socket._websocket.send(socket._core.send(start))
            answer = socket._core.begin(await socket._websocket.recv())
        except ConnectionClosed as error:
            raise ServerRefused(f"the server closed the socket: {error}") from None
        if isinstance(answer, Error):
            await socket._websocket.close()
            raise ServerRefused(answer.message, code=answer.code)
        return socket

    def new_id(self) -> str:
        """A response id of this session."""
        return f"r{next(self._ids)}"

    async def send(self, message: ClientMessage) -> None:
        """Send; a lost connection shows where it is read."""
        try:
            await self._websocket.send(self._core.send(message))
        except ConnectionClosed:
            return

    async def speak(self, text: str) -> Trip:
        """Have a whole text spoken, outside of the conversation."""
        recorder = Recorder(self._now_s)
        response_id = self.new_id()
        start = ResponseStart(m=1, response_id=response_id, text=text, end=True, context="none")
        await self.send(start)
        return await self.listen(response_id, recorder)

    async def listen(self, response_id: str, recorder: Recorder, reads_at: float = 1.0) -> Trip:
        """Take what comes until the response is over.

        Below 1, `reads_at` leaves sound in the socket so that it comes that much slower than it
        is played.
        """
        try:
            while True:
                data = await self._websocket.recv()
                news = self._core.receive(data)
                if news is None and isinstance(data, bytes) and is_audio(data):
                    recorder.stale_sound()
                trip = self._note(news, response_id, recorder)
                if trip:
                    return trip
                if isinstance(news, Sound) and reads_at < 1:
                    await asyncio.sleep(news.ms / 1000 / reads_at)
        except ConnectionClosed as error:
            return recorder.end("failed", f"the socket was closed: {error}")

    def _note(
        self, news: ServerMessage | Sound | None, response_id: str, recorder: Recorder
    ) -> Trip | None:
        match news:
            case Sound(response_id=of) if of == response_id:
                recorder.sound(b"".join(news.pieces), news.ms / 1000)
            case ResponseStalled(response_id=of, why="text") if of == response_id:
                recorder.starves(True)
            case ResponseResumed(response_id=of, why="text") if of == response_id:
                recorder.starves(False)
            case ResponseDone(response_id=of) if of == response_id:
                return recorder.done(news)
            case Error():
                ending: Ending = "refused" if news.code == "overloaded" else "failed"
                return recorder.end(ending, f"{news.code}: {news.message}")
        return None

    def vanish(self) -> None:
        """Die as a client does whose machine lost its network: without a word."""
        self._websocket.transport.abort()

    async def close(self) -> None:
        """End the session."""
        await self.send(SessionClose(m=1))
        await self._websocket.close()


class SocketTarget:
    """Speaks each text in a session of its own; the session is open before the clock starts."""

    def __init__(self, address: Address, voice: str | None, now_s: Callable[[], float]) -> None:
        self._address = address
        self._voice = voice
        self._now_s = now_s

    async def speak(self, line: Line) -> Trip:
        """Have one line spoken; every way to fail is a `Trip` too."""
        recorder = Recorder(self._now_s)
        try:
            socket = await SpeechSocket.open(self._address, self._voice, self._now_s)
        except ServerRefused as error:
            return recorder.refused(error)
        try:
            return await socket.speak(line.text)
        finally:
            await socket.close()
