"""The client without asyncio: the same calls, each of which waits; sound by plain iteration.

The session lives on a thread of its own, which is also where text of an iterator is written from.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator
from concurrent.futures import Future
from types import TracebackType
from typing import Any, TypeVar

from realtime.protocol.messages import (
    Context,
    Flow,
    Generation,
    InputAudioCommitted,
    Item,
    ResponseDone,
    SessionStarted,
    SessionUpdated,
    Timestamps,
    WordTime,
)
from realtime.sdk import client as asynchronous
from realtime.sdk.playback import Sink
from realtime.sdk.playback import Speaker as AsyncSpeaker
from realtime.sdk.reply import Reply as AsyncReply
from realtime.sdk.session import Session as AsyncSession

_T = TypeVar("_T")


class _Loop:
    """An event loop on a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="moss-sdk", daemon=True)
        self._thread.start()

    def begin(self, work: Coroutine[Any, Any, _T]) -> Future[_T]:
        """Run there."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run there, wait here."""
        return self.begin(work).result()

    def stop(self) -> None:
        self.run(self._loop.shutdown_asyncgens())
        self.run(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Reply:
    """One response being spoken: iterate it for its sound. See `realtime.sdk.Reply`."""

    def __init__(self, reply: AsyncReply, loop: _Loop) -> None:
        self._reply = reply
        self._loop = loop

    @property
    def response_id(self) -> str:
        """Its id."""
        return self._reply.response_id

    @property
    def done(self) -> ResponseDone | None:
        """How it ended, once it has."""
        return self._reply.done

    @property
    def gaps(self) -> list[tuple[float, float]]:
        """`(at_ms, lost_ms)` for each place where sound was lost with a connection."""
        return self._reply.gaps

    @property
    def words(self) -> list[WordTime]:
        """`(word, start_ms, end_ms)`, estimated, where the client asked for them."""
        return self._reply.words

    def __iter__(self) -> Iterator[bytes]:
        """Yield sound as it arrives; raises as the iteration of `realtime.sdk.Reply`."""
        sound = aiter(self._reply)
        while True:
            piece = self._loop.run(_next(sound))
            if piece is None:
                return
            yield piece

    def flush(self) -> None:
        """Have the text so far spoken to its end, though more may follow."""
        self._loop.run(self._reply.flush())

    def interrupt(self, played_ms: float | None = None) -> ResponseDone | None:
        """Barge in: stop this and every queued response; the history keeps what was heard."""
        return self._loop.run(self._reply.interrupt(played_ms))

    def cancel(self) -> ResponseDone | None:
        """Stop this response only."""
        return self._loop.run(self._reply.cancel())

    def wait(self) -> ResponseDone | None:
        """Wait for the end without taking the sound."""
        return self._loop.run(self._reply.wait())


class Session:
    """A dialogue; made by `Client`. See `realtime.sdk.Session`."""

    def __init__(self, session: AsyncSession, loop: _Loop) -> None:
        self._session = session
        self._loop = loop

    @property
    def started(self) -> SessionStarted:
        """The session with every setting in effect."""
        return self._session.started

    @property
    def items(self) -> tuple[Item, ...]:
        """The dialogue as far as this client has been told, oldest first."""
        return self._session.items

    @property
    def rate_hz(self) -> int:
        """Sample rate of the sound."""
        return self._session.rate_hz

    def say(
        self,
        text: str | Iterable[str],
        *,
        voice: str | None = None,
        generation: Generation | None = None,
        context: Context = "conversation",
    ) -> Reply:
        """Speak `text`, or the pieces of text of an iterable as they come. Returns at once."""
        spoken = text if isinstance(text, str) else _stepped(text)

        async def begin() -> AsyncReply:
            return self._session.say(spoken, voice=voice, generation=generation, context=context)

        return Reply(self._loop.run(begin()), self._loop)

    def update(
        self,
        *,
        voice: str | None = None,
        input_rate_hz: int | None = None,
        generation: Generation | None = None,
        timestamps: Timestamps | None = None,
        flow: Flow | None = None,
        normalize: bool | None = None,
    ) -> SessionUpdated:
        """Change settings from the next reply on; returns all of them."""
        change = self._session.update(
            voice=voice,
            input_rate_hz=input_rate_hz,
            generation=generation,
            timestamps=timestamps,
            flow=flow,
            normalize=normalize,
        )
        return self._loop.run(change)

    def history(self, *, codes: bool = False) -> tuple[Item, ...]:
        """Return the dialogue as the server remembers it, oldest first."""
        return self._loop.run(self._session.history(codes=codes))

    def export(self) -> bytes:
        """Return the dialogue with its sound, to go on from with `Client(capsule=...)`."""
        return self._loop.run(self._session.export())

    def delete(self, item_id: str) -> None:
        """Take an item out of the dialogue."""
        self._loop.run(self._session.delete(item_id))

    def clear(self) -> None:
        """Forget the dialogue."""
        self._loop.run(self._session.clear())

    def add_user(self, text: str | None = None, codes: bytes | None = None) -> Item:
        """Add what the user said: its text, its codec codes, or both."""
        return self._loop.run(self._session.add_user(text, codes))

    def send_user_audio(self, data: bytes) -> None:
        """Send what the user says as it is recorded."""
        self._loop.run(self._session.send_user_audio(data))

    def commit_user_audio(self, text: str | None = None) -> InputAudioCommitted:
        """Make a turn of the user of what was sent, and its transcript if there is one."""
        return self._loop.run(self._session.commit_user_audio(text))


class Speaker:
    """Plays replies aloud. See `realtime.sdk.Speaker`.

    with Client("http://127.0.0.1:8000") as session, Speaker(session) as speaker:
        speaker.play(session.say("Hello! How are you today?"))
    """

    def __init__(self, session: Session, sink: Sink | None = None) -> None:
        self._loop = session._loop
        self._speaker = AsyncSpeaker(session._session, sink)

    def __enter__(self) -> Speaker:
        """Open the sink."""
        self._loop.run(self._speaker.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Be silent and close the sink."""
        self._loop.run(self._speaker.__aexit__(kind, error, traceback))

    def play(self, reply: Reply) -> ResponseDone | None:
        """Play a reply to its end, or until `interrupt` is called, from another thread."""
        return self._loop.run(self._speaker.play(reply._reply))

    def interrupt(self) -> ResponseDone | None:
        """Barge in: silence now; the history keeps what was truly heard."""
        return self._loop.run(self._speaker.interrupt())


class Client:
    """`with Client("http://127.0.0.1:8000") as session: ...`

    Takes what `realtime.sdk.Client` does, and raises what it raises.
    """

    def __init__(self, url: str, **settings: Any) -> None:
        self._url = url
        self._settings = settings

    def __enter__(self) -> Session:
        """Connect and start the session."""
        client = asynchronous.Client(self._url, **self._settings)
        self._loop = _Loop()
        self._left = asyncio.Event()
        opened: Future[AsyncSession] = Future()
        self._living = self._loop.begin(self._live(client, opened))
        try:
            return Session(opened.result(), self._loop)
        except BaseException:
            self._loop.stop()
            raise

    async def _live(self, client: asynchronous.Client, opened: Future[AsyncSession]) -> None:
        """Enter and leave in one task, as task groups want it."""
        try:
            async with client as session:
                opened.set_result(session)
                await self._left.wait()
        except BaseException as error:
            if opened.done():
                raise
            opened.set_exception(error)

    async def _leave(self) -> None:
        self._left.set()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the session; what is still being said is cut off."""
        try:
            self._loop.run(self._leave())
            self._living.result()
        finally:
            self._loop.stop()


async def _next(sound: AsyncIterator[bytes]) -> bytes | None:
    return await anext(sound, None)


async def _stepped(text: Iterable[str]) -> AsyncIterator[str]:
    """Take an iterable's pieces on a worker thread: it may block, as a stream of an LLM does."""
    pieces = iter(text)
    while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
        yield piece
