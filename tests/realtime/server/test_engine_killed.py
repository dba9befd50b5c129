"""`kill -9` of the engine during live conversations and requests: they go on as if nothing was."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator

import httpx
import pytest

from realtime.protocol.messages import Generation
from realtime.sdk import Client

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

TALKS = 8
TEXT = "That sounds like a wonderful idea, and I would like to hear "
REST = "more of it when you have the time."


class Talk:
    """One conversation: a turn, a question, and a reply whose text stops half-way for a while."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.speaks = asyncio.Event()
        self.goes_on = asyncio.Event()
        self.sound = b""
        self.history: list[tuple[str, str, float, bytes]] = []
        self.warnings: list[str] = []

    async def run(self, url: str) -> None:
        async with Client(url, generation=Generation(seed=self.number)) as session:
            events = asyncio.create_task(self._follow(session.events()))
            await session.say("Yes." if self.number % 2 else "Thank you.").wait()
            await session.add_user(f"What do you think of number {self.number}?")
            reply = session.say(self._text())
            async for pcm in reply:
                self.sound += pcm
                self.speaks.set()
            assert reply.done.status == "completed"
            assert reply.gaps == []
            items = await session.history(codes=True)
            self.history = [
                (i.role, i.text, i.audio_ms, i.audio.codes if i.audio else b"") for i in items
            ]
        await events

    async def _text(self) -> AsyncIterator[str]:
        yield TEXT
        await self.goes_on.wait()
        yield REST

    async def _follow(self, events: AsyncIterator[object]) -> None:
        async for event in events:
            if event.type == "warning":
                self.warnings.append(event.code)


async def converse(server, *, kill: bool) -> list[Talk]:
    talks = [Talk(number) for number in range(TALKS)]
    async with asyncio.TaskGroup() as tasks:
        for talk in talks:
            tasks.create_task(talk.run(server.base_url))
        for talk in talks:
            await talk.speaks.wait()
        if kill:
            os.kill(server.services.bridge._link.pid, signal.SIGKILL)
        for talk in talks:
            talk.goes_on.set()
    return talks


async def test_eight_conversations_lose_nothing(run_server):
    settings = {"deterministic": True, "warm_up": False, "max_rows": TALKS, "stall_flush_ms": 0}
    server = run_server(None, **settings, restart_wait_s=600)
    unbroken = await converse(server, kill=False)
    first_pid = server.services.bridge._link.pid
    killed = await converse(server, kill=True)
    assert server.services.bridge._link.pid != first_pid
    for talk, expected in zip(killed, unbroken, strict=True):
        assert talk.warnings == ["engine_restarted"]
        assert [role for role, *_ in talk.history] == ["assistant", "user", "assistant"]
        assert talk.history[-1][1] == TEXT + REST
        assert talk.history == expected.history
        assert talk.sound == expected.sound
    assert len({talk.sound for talk in killed}) == TALKS


def read_speech(server, *, kill: bool) -> bytes:
    """A minute of sound, of which half a minute is made before anyone reads."""
    body = {"input": "Tell me more of it. " * 40, "response_format": "pcm", "seed": 3}
    url, sound = server.base_url + "/v1/audio/speech", b""
    with httpx.stream("POST", url, json=body, timeout=60) as answer:
        assert answer.status_code == 200
        for piece in answer.iter_raw():
            if not sound and kill:
                os.kill(server.services.bridge._link.pid, signal.SIGKILL)
            sound += piece
    return sound


def test_a_request_goes_on_in_the_next_engine(run_server):
    server = run_server(None, fake=True, restart_wait_s=600)
    first_pid = server.services.bridge._link.pid
    unbroken = read_speech(server, kill=False)
    assert server.services.bridge._link.pid == first_pid
    assert read_speech(server, kill=True) == unbroken
    assert server.services.bridge._link.pid != first_pid
    assert len(unbroken) > 60 * 48_000
