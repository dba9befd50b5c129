"""An asyncio client: open a session, feed text as it is written, take sound as it is spoken."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import AsyncIterable, AsyncIterator
from types import TracebackType
from urllib.parse import urlsplit, urlunsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.typing import Subprotocol

from realtime.protocol.errors import CLOSE_NORMAL, CLOSE_PROTOCOL, ProtocolError
from realtime.protocol.messages import (
    AudioRequest,
    ClientMessage,
    Context,
    Error,
    Generation,
    History,
    HistoryGet,
    InputAudioClear,
    InputAudioCommit,
    InputAudioCommitted,
    InputRequest,
    Item,
    ItemAudio,
    ItemCreate,
    ItemCreated,
    NewItem,
    ResponseCancel,
    ResponseDone,
    ResponseEnd,
    ResponseStart,
    ResponseText,
    ServerMessage,
    SessionClose,
    SessionStart,
    SessionStarted,
)
from realtime.protocol.pace import Pace
from realtime.sdk.core import SUBPROTOCOL, ClientCore, Sound
from realtime.sdk.errors import MossError, ResponseFailed, ServerRefused, StreamInterrupted
from realtime.sdk.reply import Reply

DELTA_CHARS = 4096
_PACE_MARGIN = 0.8  # of the burst: what was sent evenly may arrive bunched
PCM = AudioRequest(codec="pcm_s16le")

# At DEBUG websockets logs every header and frame: keys, and what is said.
_quiet = logging.getLogger(f"{__name__}.websockets")
_quiet.setLevel(logging.INFO)


class Session:
    """A dialogue on one connection; made by `Client`."""

    def __init__(self, websocket: ClientConnection, tasks: asyncio.TaskGroup) -> None:
        self.started: SessionStarted
        self._websocket = websocket
        self._tasks = tasks
        self._core = ClientCore()
        self._ids = itertools.count(1)
        self._replies: dict[str, Reply] = {}
        self._answers: dict[str, asyncio.Future[ServerMessage]] = {}
        self._lost: StreamInterrupted | None = None
        self._input_error: ResponseFailed | None = None

    @property
    def rate_hz(self) -> int:
        """Sample rate of the sound; `started.audio` has the rest of its format."""
        return self.started.audio.sample_rate

    def say(
        self,
        text: str | AsyncIterable[str],
        *,
        voice: str | None = None,
        generation: Generation | None = None,
        context: Context = "conversation",
    ) -> Reply:
        """Speak `text`, or the pieces of text of an iterator as they come. Returns at once."""
        reply = Reply(self, f"r{next(self._ids)}")
        self._replies[reply.response_id] = reply
        start = ResponseStart(
            m=1,
            event_id=reply.response_id,
            response_id=reply.response_id,
            voice=voice,
            generation=generation,
            context=context,
        )
        name = f"say-{reply.response_id}"
        reply.fed_by(self._tasks.create_task(self._speak(reply, start, text), name=name))
        return reply

    async def history(self, *, codes: bool = False) -> tuple[Item, ...]:
        """Return the dialogue as the server remembers it, oldest first."""
        answer = await self._ask(HistoryGet(m=1, event_id=self._event_id(), audio=codes))
        assert isinstance(answer, History)
        return answer.items

    async def add_user(self, text: str | None = None, codes: bytes | None = None) -> Item:
        """Add what the user said: its text, its codec codes (u16 `[frames, n_vq]`), or both."""
        audio = None if codes is None else ItemAudio(codes=codes)
        item = NewItem(role="user", text=text, audio=audio)
        answer = await self._ask(ItemCreate(m=1, event_id=self._event_id(), item=item))
        assert isinstance(answer, ItemCreated)
        return answer.item

    async def send_user_audio(self, data: bytes) -> None:
        """Send what the user says as it is recorded; `started.input_audio` is its format.

        That is whole samples of one channel, or one Opus packet; raises `ValueError` for anything
        else, and `ResponseFailed` if the server refused what was sent before.
        """
        self._raise_input_error()
        for frame in self._core.user_audio(data):
            await self._transmit(frame)

    async def commit_user_audio(self, text: str | None = None) -> InputAudioCommitted:
        """Make a turn of the user of what was sent, and its transcript if there is one.

        A reply that is begun after this has heard it. Raises as `send_user_audio`.
        """
        answer = await self._ask(InputAudioCommit(m=1, event_id=self._event_id(), text=text))
        self._raise_input_error()
        assert isinstance(answer, InputAudioCommitted)
        return answer

    async def clear_user_audio(self) -> None:
        """Forget the user audio since the last commit."""
        await self.send(InputAudioClear(m=1))

    def _raise_input_error(self) -> None:
        error, self._input_error = self._input_error, None
        if error:
            raise error

    async def send(self, message: ClientMessage) -> None:
        """Send any message of the protocol; its `m` is set here."""
        await self._transmit(self._core.send(message))

    async def _transmit(self, data: bytes) -> None:
        if self._lost:
            raise self._lost
        try:
            await self._websocket.send(data)
        except ConnectionClosed as error:
            raise _interrupted(error) from None

    async def _open(self, start: SessionStart) -> None:
        await self.send(start)
        try:
            answer = self._core.receive(await self._websocket.recv())
        except ConnectionClosed as error:
            raise ServerRefused(str(_interrupted(error))) from None
        if isinstance(answer, Error):
            raise ServerRefused(answer.message, code=answer.code)
        assert isinstance(answer, SessionStarted), answer
        self.started = answer
        limits = answer.limits
        self._pace = Pace(limits.text_deltas_per_s, _PACE_MARGIN * limits.text_delta_burst)

    async def _speak(
        self, reply: Reply, start: ResponseStart, text: str | AsyncIterable[str]
    ) -> None:
        try:
            await self.send(start)
            reply.start()
            async for piece in _pieces(text):
                for at in range(0, len(piece), DELTA_CHARS):
                    if reply.ended:
                        return
                    delta = piece[at : at + DELTA_CHARS]
                    await self._keep_pace()
                    await self.send(ResponseText(m=1, response_id=reply.response_id, delta=delta))
            await self.send(ResponseEnd(m=1, response_id=reply.response_id))
        except MossError as error:
            reply.end(None, error)
        except Exception as error:  # the caller's iterator failed: it is told where it listens
            reply.end(None, error)
            with contextlib.suppress(MossError):
                await self.send(ResponseCancel(m=1, response_id=reply.response_id))

    async def _keep_pace(self) -> None:
        """Wait where the text comes faster than the server takes it."""
        wait_ms = self._pace.reserve(asyncio.get_running_loop().time() * 1000)
        if wait_ms:
            await asyncio.sleep(wait_ms / 1000)

    async def _read(self) -> None:
        try:
            async for data in self._websocket:
                self._dispatch(self._core.receive(data))
            code, reason = self._websocket.close_code or 1006, self._websocket.close_reason or ""
            error = StreamInterrupted(code, reason)
        except ConnectionClosed as closed:
            error = _interrupted(closed)
        except ProtocolError as broken:
            error = StreamInterrupted(CLOSE_PROTOCOL, broken.message)
            await self._websocket.close(CLOSE_PROTOCOL)
        self._lost = error
        self._cut_off(error)
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(error)

    def _cut_off(self, error: StreamInterrupted) -> None:
        for reply in list(self._replies.values()):
            reply.end(None, error)

    def _dispatch(self, message: ServerMessage | Sound | None) -> None:
        match message:
            case Sound() if reply := self._replies.get(message.response_id):
                reply.take(message.pieces, message.ms)
            case ResponseDone() if reply := self._replies.pop(message.response_id, None):
                failure = message.error if message.status == "failed" else None
                reply.end(
                    message,
                    ResponseFailed(failure.code, failure.message, failure.retryable)
                    if failure
                    else None,
                )
            case Error():
                self._on_error(message)
            case Sound() | None:
                pass
            case _ if message.reply_to in self._answers:
                self._answers[message.reply_to].set_result(message)

    def _on_error(self, error: Error) -> None:
        failure = ResponseFailed(error.code, error.message, error.retryable)
        if error.reply_to in self._answers:
            self._answers[error.reply_to].set_exception(failure)
        elif reply := self._replies.pop(error.response_id or error.reply_to or "", None):
            reply.end(None, failure)
            if error.code == "text_too_long":  # what was accepted before must not be spoken on
                cancel = ResponseCancel(m=1, response_id=reply.response_id)
                self._tasks.create_task(self.send(cancel), name=f"cancel-{reply.response_id}")
        elif error.response_id is None:  # of no message that waits: only user audio is left
            self._input_error = failure

    async def _ask(self, message: ClientMessage) -> ServerMessage:
        assert message.event_id
        answer: asyncio.Future[ServerMessage] = asyncio.get_running_loop().create_future()
        self._answers[message.event_id] = answer
        try:
            await self.send(message)
            return await answer
        finally:
            del self._answers[message.event_id]

    def _event_id(self) -> str:
        return f"e{next(self._ids)}"


class Client:
    """`async with Client("http://127.0.0.1:8000") as session: ...`

    Opens a connection and a session; both end with the block. `api_key` may be a client token
    instead. `audio` is the sound that replies come in, `input_audio` what the user's will be sent
    as. `normalize` speaks Markdown, numbers and signs as words. Raises `ServerRefused`.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        voice: str | None = None,
        audio: AudioRequest = PCM,
        input_audio: InputRequest | None = None,
        generation: Generation | None = None,
        normalize: bool = False,
        history: tuple[NewItem, ...] = (),
    ) -> None:
        self._url = socket_url(url)
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._start = SessionStart(
            m=1,
            voice=voice,
            audio=audio,
            input_audio=input_audio,
            generation=generation,
            normalize=normalize,
            history=history,
        )
        self._tasks = asyncio.TaskGroup()
        self._websocket: ClientConnection

    async def __aenter__(self) -> Session:
        """Connect and start the session."""
        shown = self._url.partition("?")[0]  # a query may hold a token
        try:
            self._websocket = await connect(
                self._url,
                subprotocols=[Subprotocol(SUBPROTOCOL)],
                additional_headers=self._headers,
                compression=None,
                max_size=None,
                logger=_quiet,
            )
        except InvalidStatus as error:
            response = error.response
            body = (response.body or b"").decode(errors="replace")
            raise ServerRefused(
                f"HTTP {response.status_code} from {shown}: {body[:500]}", response.status_code
            ) from None
        except (OSError, InvalidHandshake) as error:
            raise ServerRefused(f"cannot connect to {shown}: {error}") from error
        session = Session(self._websocket, self._tasks)
        try:
            await session._open(self._start)
        except BaseException:
            await self._websocket.close()
            raise
        await self._tasks.__aenter__()
        self._reading = self._tasks.create_task(session._read(), name="sdk-read")
        self._session = session
        return session

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the session; what is still being said is cut off."""
        # Before the server is told: its last words must not decide how a reply seems to end.
        self._session._cut_off(StreamInterrupted(CLOSE_NORMAL, "this client left its session"))
        with contextlib.suppress(MossError):
            await self._session.send(SessionClose(m=1))
        await self._websocket.close()
        await self._reading
        await self._tasks.__aexit__(None, None, None)


async def _pieces(text: str | AsyncIterable[str]) -> AsyncIterator[str]:
    if isinstance(text, str):
        yield text
    else:
        async for piece in text:
            yield piece


def _interrupted(error: ConnectionClosed) -> StreamInterrupted:
    frame = error.rcvd or error.sent
    return StreamInterrupted(frame.code, frame.reason) if frame else StreamInterrupted(1006, "")


def socket_url(url: str) -> str:
    """Return the WebSocket address of a server given by its http(s) or ws(s) address."""
    parts = urlsplit(url)
    scheme = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}.get(parts.scheme)
    if scheme is None or not parts.netloc:
        raise ValueError(f"not the address of a server: {url!r} (try http://127.0.0.1:8000)")
    path = parts.path if parts.path not in ("", "/") else "/v1/speech"
    return urlunsplit((scheme, parts.netloc, path, parts.query, ""))
