"""A hundred dead sockets in one conversation, on the real engine with the shipped voice."""

from __future__ import annotations

import asyncio
from random import Random

import numpy as np
import pytest

from realtime.protocol.messages import Generation
from realtime.sdk import Client, Session

pytestmark = pytest.mark.anyio

KILLS = 100
REPLIES = [
    f"This is reply number {n}, and it goes on for a while, so be patient." for n in range(8)
]


async def words(text: str):
    for word in text.split():
        yield word + " "
        await asyncio.sleep(0.002)


async def converse(session: Session) -> list[np.ndarray]:
    """Return the sound of each reply; nothing may be lost that is not told."""
    sounds = []
    for number, text in enumerate(REPLIES):
        await session.add_user(f"Question {number}?")
        reply = session.say(words(text))
        sounds.append(np.frombuffer(b"".join([piece async for piece in reply]), "<i2"))
        assert reply.gaps == []
    return sounds


async def test_100_kills_change_no_sample_and_no_word(run_server):
    server = run_server(None, deterministic=True)
    generation = Generation(seed=7)
    async with Client(server.base_url, generation=generation) as session:
        expected = await converse(session)
        texts = [(i.role, i.text, i.audio_ms) for i in await session.history()]
    random, kills = Random(5), 0
    while kills < KILLS:
        async with Client(server.base_url, generation=generation) as session:
            talking = asyncio.create_task(converse(session), name="talk")
            while not talking.done():
                await asyncio.sleep(random.uniform(0.02, 0.4))
                session.link._websocket.transport.abort()
                kills += 1
            for sound, whole in zip(await talking, expected, strict=True):
                np.testing.assert_array_equal(sound, whole)
            items = await session.history()
            assert [(i.role, i.text, i.audio_ms) for i in items] == texts
            assert session.items == items
