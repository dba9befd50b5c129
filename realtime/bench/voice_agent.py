"""Voice agents: sessions whose text comes as a language model writes it, and whose users barge in.

Each session thinks, writes its text in deltas at a language model's pace, listens, and thinks
again. Some users interrupt, some clients vanish without a word, some take sound too slowly.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence

from realtime.bench.loads import Clock
from realtime.bench.recorder import Recorder
from realtime.bench.socket import SpeechSocket
from realtime.bench.trip import Trip
from realtime.bench.workload import Agent, Turn
from realtime.protocol.messages import (
    Flow,
    Interrupt,
    Playback,
    Played,
    ResponseEnd,
    ResponseStart,
    ResponseText,
)
from realtime.sdk.errors import ServerRefused
from realtime.sdk.link import Address

FIRST_S_PER_WORD = 0.35
REPORT_S = 0.2


class SpeakingRate:
    """Seconds of sound a word takes, learned from whole replies: how long a reply will be."""

    def __init__(self) -> None:
        self._words = 0
        self._sound_s = 0.0

    def learn(self, words: int, sound_s: float) -> None:
        """A reply of so many words lasted so long."""
        self._words += words
        self._sound_s += sound_s

    def expected_s(self, words: int) -> float:
        """How long a reply will probably be."""
        return words * (self._sound_s / self._words if self._words else FIRST_S_PER_WORD)


@dataclasses.dataclass(frozen=True, slots=True)
class Dialling:
    """How sessions are opened. With `max_ahead_ms` clients report what they have played, and are
    sent no more than so much ahead; without it they take sound as fast as it is made.
    """

    address: Address
    voice: str | None = None
    max_ahead_ms: int | None = None

    async def open(self, clock: Clock) -> SpeechSocket:
        """Open one. Raises `ServerRefused`."""
        flow = None
        if self.max_ahead_ms is not None:
            flow = Flow(mode="ack", max_ahead_ms=self.max_ahead_ms)
        return await SpeechSocket.open(self.address, self.voice, clock, flow)


async def run_agents(dialling: Dialling, agents: Sequence[Agent], clock: Clock) -> list[Trip]:
    """Run all sessions at the same time; return their responses in the order they ended."""
    trips: list[Trip] = []
    rate = SpeakingRate()
    async with asyncio.TaskGroup() as sessions:
        for number, agent in enumerate(agents):
            talk = _Talk(dialling, agent, rate, trips, clock)
            sessions.create_task(talk.run(), name=f"agent-{number}")
    return trips


class _Talk:
    """One session, and another one after its client vanished."""

    def __init__(
        self,
        dialling: Dialling,
        agent: Agent,
        rate: SpeakingRate,
        trips: list[Trip],
        clock: Clock,
    ) -> None:
        self._dialling = dialling
        self._agent = agent
        self._rate = rate
        self._trips = trips
        self._clock = clock
        self._socket: SpeechSocket | None = None

    async def run(self) -> None:
        for turn in self._agent.turns:
            await self._clock.sleep(turn.think_s)
            if self._socket is None and not await self._connect():
                continue
            assert self._socket
            recorder = Recorder(self._clock, slow_reader=self._agent.reads_at < 1)
            trip = await self._take(self._socket, turn, recorder)
            self._trips.append(trip)
            if recorder.vanished or trip.ending == "failed":
                self._socket.vanish()
                self._socket = None
            elif trip.is_whole:
                self._rate.learn(turn.words, trip.audio_s)
        if self._socket:
            await self._socket.close()

    async def _connect(self) -> bool:
        recorder = Recorder(self._clock)
        try:
            self._socket = await self._dialling.open(self._clock)
        except ServerRefused as error:
            self._trips.append(recorder.refused(error))
            return False
        return True

    async def _take(self, socket: SpeechSocket, turn: Turn, recorder: Recorder) -> Trip:
        """Have one turn, to the end of its playback."""
        response_id = socket.new_id()
        await socket.send(ResponseStart(m=1, response_id=response_id))
        async with asyncio.TaskGroup() as tasks:
            writing = tasks.create_task(self._write(socket, response_id, turn, recorder))
            reporting = tasks.create_task(self._report(socket, response_id, recorder))
            cutting = tasks.create_task(self._cut(socket, response_id, turn, recorder))
            trip = await socket.listen(response_id, recorder, self._agent.reads_at)
            writing.cancel()
            if recorder.pieces and trip.ending in ("completed", "incomplete"):
                await self._clock.sleep(recorder.pieces[0].at_s + trip.audio_s - self._clock())
            reporting.cancel()
            cutting.cancel()
        if recorder.vanished and trip.ending == "failed":
            return dataclasses.replace(trip, ending="lost", error="")
        if recorder.cancel_s is not None and trip.is_whole:  # all of it had come before
            heard_ms = 1000 * recorder.played_s(recorder.cancel_s)
            return dataclasses.replace(trip, cancel_s=recorder.cancel_s, heard_ms=heard_ms)
        return trip

    async def _write(
        self, socket: SpeechSocket, response_id: str, turn: Turn, recorder: Recorder
    ) -> None:
        for number, delta in enumerate(turn.deltas):
            await self._clock.sleep(delta.after_s)
            await socket.send(ResponseText(m=1, response_id=response_id, delta=delta.text))
            recorder.text(delta.text, last=number == len(turn.deltas) - 1)
        await socket.send(ResponseEnd(m=1, response_id=response_id))

    async def _report(self, socket: SpeechSocket, response_id: str, recorder: Recorder) -> None:
        """Tell what is played, where the server wants to know."""
        if self._dialling.max_ahead_ms is None:
            return
        await recorder.begun.wait()
        while not recorder.vanished:
            played_ms = 1000 * recorder.played_s(self._clock())
            await socket.send(Playback(m=1, response_id=response_id, played_ms=played_ms))
            await self._clock.sleep(REPORT_S)

    async def _cut(
        self, socket: SpeechSocket, response_id: str, turn: Turn, recorder: Recorder
    ) -> None:
        """Barge in, or vanish, once so much of the reply has been played."""
        if turn.cut_at is None:
            return
        await recorder.begun.wait()
        due_s = recorder.pieces[0].at_s + turn.cut_at * self._rate.expected_s(turn.words)
        await self._clock.sleep(due_s - self._clock())
        if turn.vanishes:
            recorder.vanished = True
            socket.vanish()
            return
        heard_ms = 1000 * recorder.played_s(self._clock())
        recorder.cancelled()
        await socket.send(Interrupt(m=1, played=Played(response_id=response_id, ms=heard_ms)))
