"""One run as it was asked for: warm-up, then the same load round after round."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import httpx

from realtime.bench import workload
from realtime.bench.loads import Clock, Speak, closed_loop, open_loop
from realtime.bench.occupancy import watched
from realtime.bench.references import WARM_UP_SPEAKER, References, speakers_of
from realtime.bench.rest import RestOptions, RestTarget, client_of
from realtime.bench.socket import SocketTarget
from realtime.bench.summary import Round
from realtime.bench.trip import Trip
from realtime.bench.voice_agent import Dialling, run_agents
from realtime.bench.workload import Line
from realtime.sdk.client import socket_url
from realtime.sdk.link import Address

FILLING = 4
"""Clients of a pass that only fills caches."""


class Run:
    """`asked` is what `arguments.parser` gives."""

    def __init__(self, asked: argparse.Namespace, api_key: str | None) -> None:
        """Raises `ValueError` for what is no address of a server."""
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._asked = asked
        self._api_key = api_key
        self._address = Address(socket_url(asked.server), headers)
        self._clock = Clock()

    async def rounds(self) -> list[Round]:
        """Run all rounds, after a warm-up of which nothing is kept. Raises `httpx.HTTPError`."""
        async with client_of(self._asked.server, self._api_key) as client:
            await self._warm_up(client)
            return [await self._round(client, number) for number in range(self._asked.rounds)]

    async def _warm_up(self, client: httpx.AsyncClient) -> None:
        """Say other texts, by speakers that no round knows, one after the other."""
        count, tier = self._asked.warm_up, getattr(self._asked, "references", "none")
        speakers = None if tier == "none" else [WARM_UP_SPEAKER + n for n in range(count)]
        lines, references = (
            workload.lines(count, self._asked.seed - 1, speakers),
            References(client),
        )
        await references.send_inline(lines)
        await closed_loop(self._speak(client, references), lines, 1)

    async def _round(self, client: httpx.AsyncClient, number: int) -> Round:
        lines, references = self._lines(number), References(client)
        speak = self._speak(client, references)
        try:
            if getattr(self._asked, "references", "none") == "registered":
                await references.register(lines)
            else:
                await references.send_inline(lines)
            if getattr(self._asked, "references", "none") == "hot":
                await closed_loop(speak, lines, FILLING)
            async with watched(self._asked.server, self._api_key, self._clock) as view:
                started_s = self._clock()
                trips = await self._load(speak, lines)
                wall_s = self._clock() - started_s
        finally:
            await references.forget()
        return Round(
            tuple(trips),
            wall_s,
            fills=tuple(view.fills),
            registration_ms=tuple(references.registration_ms),
            slot_free_ms=tuple(view.cancel_ms.values()),
        )

    def _lines(self, number: int) -> tuple[Line, ...]:
        """The requests of a round, as many as it has; agents say their own."""
        asked = self._asked
        if asked.load == "voice-agent":
            return ()
        count = asked.bursts * asked.size if asked.load == "burst" else asked.requests
        speakers = speakers_of(asked.references, count, asked.seed, number)
        return workload.lines(count, asked.seed, speakers, sized=asked.sized)

    async def _load(self, speak: Speak, lines: Sequence[Line]) -> list[Trip]:
        asked = self._asked
        match asked.load:
            case "voice-agent":
                agents = workload.agents(asked.sessions, asked.turns, asked.seed)
                dialling = Dialling(self._address, asked.voice, asked.max_ahead_ms)
                return await run_agents(dialling, agents, self._clock)
            case "closed-loop":
                return await closed_loop(speak, lines, asked.concurrency)
            case "poisson":
                times_s = workload.arrivals_s(len(lines), asked.per_s, asked.seed)
            case _:
                times_s = workload.bursts_s(asked.bursts, asked.size, asked.every_s)
        return await open_loop(speak, lines, times_s, self._clock)

    def _speak(self, client: httpx.AsyncClient, references: References) -> Speak:
        asked = self._asked
        if getattr(asked, "endpoint", "ws") == "ws":
            return SocketTarget(self._address, asked.voice, self._clock).speak
        options = RestOptions(
            response_format=asked.format,
            stream_format="sse" if asked.sse else "audio",
            rate_hz=asked.rate_hz,
            channels=asked.channels,
            voice=asked.voice,
            extra=asked.extra,
        )
        return RestTarget(client, options, self._clock, references).speak
