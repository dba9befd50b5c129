"""A dialogue as its agent sees it: replies to listen to, questions to ask, news to follow."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterable, AsyncIterator

from realtime.protocol.messages import (
    ClientMessage,
    Context,
    Error,
    Flow,
    Generation,
    History,
    HistoryCapsule,
    HistoryClear,
    HistoryExport,
    HistoryGet,
    InputAudioClear,
    InputAudioCommit,
    InputAudioCommitted,
    InputUpdate,
    Item,
    ItemAudio,
    ItemCreate,
    ItemCreated,
    ItemDelete,
    NewItem,
    ResponseCancel,
    ResponseDone,
    ResponseEnd,
    ResponseStart,
    ResponseText,
    ResponseWords,
    ServerMessage,
    SessionGoingAway,
    SessionStart,
    SessionStarted,
    SessionUpdate,
    SessionUpdated,
    Timestamps,
)
from realtime.protocol.pace import Pace
from realtime.sdk.core import Sound
from realtime.sdk.errors import MossError, ResponseFailed, StreamInterrupted
from realtime.sdk.link import Address, Link
from realtime.sdk.reply import Reply

DELTA_CHARS = 4096
_PACE_MARGIN = 0.8  # of the burst: what was sent evenly may arrive bunched


class Session:
    """A dialogue; made by `Client`, over one connection after another."""

    def __init__(
        self,
        address: Address,
        start: SessionStart,
        tasks: asyncio.TaskGroup,
        *,
        resume_s: float,
        keep_sound: bool,
    ) -> None:
        self.link = Link(
            address,
            start,
            give_up_s=resume_s,
            deliver=self._dispatch,
            begun_anew=self._begun_anew,
        )
        self._tasks = tasks
        self._keep_sound = keep_sound
        self._exporting: asyncio.Task[None] | None = None
        self._pace: Pace | None = None
        self._followers: set[asyncio.Queue[ServerMessage | None]] = set()
        self._ids = itertools.count(1)
        self._replies: dict[str, Reply] = {}
        self._answers: dict[str, asyncio.Future[ServerMessage]] = {}
        self._input_error: ResponseFailed | None = None

    @property
    def started(self) -> SessionStarted:
        """The session as it began, or was taken up last; it has every setting in effect."""
        return self.link.started

    @property
    def items(self) -> tuple[Item, ...]:
        """The dialogue as far as this client has been told, oldest first."""
        return self.link.core.mirror.items

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

    async def update(
        self,
        *,
        voice: str | None = None,
        input_rate_hz: int | None = None,
        generation: Generation | None = None,
        timestamps: Timestamps | None = None,
        flow: Flow | None = None,
        normalize: bool | None = None,
    ) -> SessionUpdated:
        """Change settings from the next reply on; returns all of them. Raises `ResponseFailed`.

        `input_rate_hz` is that of user audio, from the next that is sent on; first commit what was.
        """
        change = SessionUpdate(
            m=1,
            event_id=self._event_id(),
            voice=voice,
            input_audio=InputUpdate(sample_rate=input_rate_hz) if input_rate_hz else None,
            generation=generation,
            timestamps=timestamps,
            flow=flow,
            normalize=normalize,
        )
        answer = await self._ask(change)
        assert isinstance(answer, SessionUpdated)
        self.link.adopt(change, answer)
        return answer

    async def history(self, *, codes: bool = False) -> tuple[Item, ...]:
        """Return the dialogue as the server remembers it, oldest first."""
        answer = await self._ask(HistoryGet(m=1, event_id=self._event_id(), audio=codes))
        assert isinstance(answer, History)
        return answer.items

    async def export(self) -> bytes:
        """Return the dialogue with its sound, to go on from with `Client(capsule=...)`."""
        answer = await self._ask(HistoryExport(m=1, event_id=self._event_id()))
        assert isinstance(answer, HistoryCapsule)
        return answer.data

    async def delete(self, item_id: str) -> None:
        """Take an item out of the dialogue."""
        await self._ask(ItemDelete(m=1, event_id=self._event_id(), item_id=item_id))

    async def clear(self) -> None:
        """Forget the dialogue."""
        await self._ask(HistoryClear(m=1, event_id=self._event_id()))

    async def events(self) -> AsyncIterator[ServerMessage]:
        """Yield every message of the server from now on, to the end of the session."""
        news: asyncio.Queue[ServerMessage | None] = asyncio.Queue()
        self._followers.add(news)
        try:
            while (message := await news.get()) is not None:
                yield message
        finally:
            self._followers.discard(news)

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
        await self.link.send_user_audio(data)

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
        """Send any message of the protocol; its `m` is set here. Raises `MossError`."""
        await self.link.send(message)

    def is_stale(self, epoch: int | None) -> bool:
        """Whether sound of this epoch was interrupted; for replies."""
        return self.link.core.is_stale(epoch)

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
        if self._pace is None:
            limits = self.started.limits
            self._pace = Pace(limits.text_deltas_per_s, _PACE_MARGIN * limits.text_delta_burst)
        wait_ms = self._pace.reserve(asyncio.get_running_loop().time() * 1000)
        if wait_ms:
            await asyncio.sleep(wait_ms / 1000)

    async def run(self) -> None:
        """Receive to the end; for the client."""
        await self.link.run()
        assert self.link.lost
        self.cut_off(self.link.lost)
        for news in self._followers:
            news.put_nowait(None)

    def cut_off(self, error: MossError) -> None:
        """End everything that waits; for the client."""
        for reply in list(self._replies.values()):
            reply.end(None, error)
        self._replies.clear()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(error)

    def _begun_anew(self, error: StreamInterrupted) -> None:
        self._pace = None
        self.cut_off(error)

    def _dispatch(self, message: ServerMessage | Sound) -> None:
        if not isinstance(message, Sound):
            for news in self._followers:
                news.put_nowait(message)
        match message:
            case Sound() if reply := self._replies.get(message.response_id):
                reply.take(message.pieces, message.ms, lost_ms=message.lost_ms, epoch=message.epoch)
            case ResponseWords() if reply := self._replies.get(message.response_id):
                reply.words += message.words
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
            case Sound():
                pass
            case _ if message.reply_to in self._answers:
                self._answer(self._answers[message.reply_to], message)
        if isinstance(message, SessionGoingAway) or (
            self._keep_sound and isinstance(message, ItemCreated)
        ):
            self._carry_sound()

    def _answer(self, waiting: asyncio.Future[ServerMessage], message: ServerMessage) -> None:
        if not waiting.done():
            waiting.set_result(message)

    def _carry_sound(self) -> None:
        """Fetch the dialogue with its sound, so that it can go on where this server is not."""
        if self._exporting is None or self._exporting.done():
            self._exporting = self._tasks.create_task(self._export_all(), name="sdk-export")

    async def _export_all(self) -> None:
        with contextlib.suppress(MossError):
            while not self.link.core.mirror.is_carried:
                await self.export()

    def _on_error(self, error: Error) -> None:
        failure = ResponseFailed(error.code, error.message, error.retryable)
        if error.reply_to in self._answers:
            if not self._answers[error.reply_to].done():
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


async def _pieces(text: str | AsyncIterable[str]) -> AsyncIterator[str]:
    if isinstance(text, str):
        yield text
    else:
        async for piece in text:
            yield piece
