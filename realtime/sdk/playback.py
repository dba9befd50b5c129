"""Replies made audible: sound to a sink, what was heard of it to the server."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from types import TracebackType
from typing import Final, Literal, Protocol

from realtime.protocol.frames import SAMPLE_BYTES
from realtime.protocol.messages import Flow, Playback, ResponseDone
from realtime.sdk.errors import MossError, ResponseFailed
from realtime.sdk.reply import Reply
from realtime.sdk.session import Session
from realtime.sdk.sound_card import SoundCard

CODEC: Final = "pcm_s16le"
REPORT_EVERY_MS = 250.0  # of sound
POLL_S = 0.02


class Sink(Protocol):
    """What makes sound audible: a sound card, a telephone line.

    Sound is 16-bit little-endian, its channels interleaved. Positions are in samples per channel
    since `open` or the last `stop`. `open` and `close` may block, the other calls may not.
    """

    def open(self, rate_hz: int, channels: int) -> None:
        """Get ready; raises `MossError` when nothing can be played."""

    def write(self, sound: bytes) -> None:
        """Play whole samples after those written before; silence where there are none."""

    def heard_samples(self) -> int:
        """Return how many of the samples written have left the loudspeaker; it never falls."""

    def stop(self) -> int:
        """Be silent at once and forget what was written; returns what was heard of it."""

    def close(self) -> None:
        """Let go of the device."""


@dataclasses.dataclass(slots=True)
class _Playing:
    """A reply on its way through the sink, and what the server was told of it."""

    reply: Reply
    begins_at: int  # position in the sink
    is_cut: bool = False  # nothing more of it may be heard
    told: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)  # of the cut
    underruns: int = 0
    state: Literal["playing", "stalled", "done"] | None = None
    reported_ms: float = 0.0


class Speaker:
    """Plays replies one after another, through the sound card unless another sink is given.

        async with Client("http://127.0.0.1:8000") as session, Speaker(session) as speaker:
            await speaker.play(session.say("Hello! How are you today?"))

    It tells the server what was heard, and the server waits where it is some seconds ahead: so each
    reply of the conversation that is begun in the block must be played, or cancelled. The
    session's sound has to be `pcm_s16le`, as it is where nothing else was asked for.
    """

    def __init__(self, session: Session, sink: Sink | None = None) -> None:
        self._session = session
        self._sink: Sink = sink or SoundCard()
        self._turn = asyncio.Lock()
        self._playing: _Playing | None = None
        self._written = 0  # position in the sink
        self._is_open = False

    async def __aenter__(self) -> Speaker:
        """Open the sink; raises `MossError`, and `ValueError` for sound that it does not play."""
        audio = self._session.started.audio
        if audio.codec != CODEC:
            text = f"a Speaker plays {CODEC}, and the sound of this session is {audio.codec}"
            raise ValueError(f"{text}: leave out the client's `audio` or ask it for {CODEC}")
        self._rate_hz = audio.sample_rate
        self._sample_bytes = SAMPLE_BYTES[CODEC] * audio.channels
        self._flow_before = self._session.started.flow
        await asyncio.to_thread(self._sink.open, audio.sample_rate, audio.channels)
        try:
            await self._ask_for(Flow(mode="ack"))
        except BaseException:
            self._sink.close()
            raise
        self._is_open = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Be silent and close the sink; replies go on, but are not heard."""
        self._is_open = False
        if self._playing:
            self._cut(self._playing)
            self._playing.told.set()
        try:
            with contextlib.suppress(MossError):
                await self._ask_for(self._flow_before)
        finally:
            await asyncio.to_thread(self._sink.close)

    async def _ask_for(self, flow: Flow) -> None:
        # A client token may fix another one: then the server runs ahead as far as that allows.
        with contextlib.suppress(ResponseFailed):
            await self._session.update(flow=flow)

    async def play(self, reply: Reply) -> ResponseDone | None:
        """Play a reply, after those that this was called for before.

        Returns how it ended, once it was heard to its end or was interrupted; None where the
        speaker was closed before that. Raises as the iteration of the reply, once what had come was
        heard. Cancelling this makes silence, and leaves the reply alone.
        """
        if not self._is_open:
            raise RuntimeError("open the speaker first: `async with Speaker(session) as speaker`")
        async with self._turn:
            if not self._is_open:  # any more
                return None
            playing = self._playing = _Playing(reply, self._written)
            filling = asyncio.create_task(self._fill(playing), name=f"play-{reply.response_id}")
            try:
                await self._follow(playing, filling)
                if not playing.is_cut:
                    await filling
                return await reply.wait() if reply.ended else None
            finally:
                self._playing = None
                if not playing.is_cut and self._sink.heard_samples() < self._written:
                    self._cut(playing)
                filling.cancel()
                await asyncio.gather(filling, return_exceptions=True)

    async def interrupt(self) -> ResponseDone | None:
        """Barge in: silence now; the history keeps what was truly heard.

        Stops what is being played and every queued reply, as `Reply.interrupt` does; call it before
        the next `say`. None when nothing is being played.
        """
        playing = self._playing
        if playing is None or playing.is_cut:
            return None
        heard_ms = self._cut(playing)
        try:
            return await playing.reply.interrupt(heard_ms)
        finally:
            playing.told.set()

    def _cut(self, playing: _Playing) -> float:
        """Be silent; returns how far into the reply the listener got."""
        playing.is_cut = True
        heard = self._sink.stop()
        self._written = 0
        return self._position_ms(playing, heard)

    async def _fill(self, playing: _Playing) -> None:
        async for sound in playing.reply:
            if not playing.is_cut:
                self._sink.write(sound)
                self._written += len(sound) // self._sample_bytes

    async def _follow(self, playing: _Playing, filling: asyncio.Task[None]) -> None:
        """Report where the listener is until all was heard, or the server knows of the cut."""
        while not playing.is_cut:
            is_whole, heard = filling.done(), self._sink.heard_samples()
            if self._written > playing.begins_at:
                await self._report(playing, heard, is_whole)
            if is_whole and heard >= self._written:
                return
            await asyncio.sleep(POLL_S)
        await playing.told.wait()  # or sound of the next reply, which it stops as well, gets out

    async def _report(self, playing: _Playing, heard: int, is_whole: bool) -> None:
        is_dry = heard >= self._written
        state: Literal["playing", "stalled", "done"]
        state = "playing" if not is_dry else "done" if is_whole else "stalled"
        heard_ms = self._position_ms(playing, heard)
        if state == playing.state and heard_ms < playing.reported_ms + REPORT_EVERY_MS:
            return
        playing.underruns += state == "stalled"
        playing.state, playing.reported_ms = state, heard_ms
        report = Playback(
            m=1,
            response_id=playing.reply.response_id,
            played_ms=heard_ms,
            buffered_ms=1000 * (self._written - heard) / self._rate_hz,
            underruns=playing.underruns,
            state=state,
        )
        with contextlib.suppress(MossError):  # the reply says it where that matters
            await self._session.send(report)

    def _position_ms(self, playing: _Playing, heard: int) -> float:
        sound_ms = 1000 * max(0, heard - playing.begins_at) / self._rate_hz
        return playing.reply.position_ms(sound_ms)
