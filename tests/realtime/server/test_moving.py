"""A dialogue leaves one server process and goes on in another, its sound included."""

from __future__ import annotations

import os
import signal
import socket

import numpy as np
import pytest

from realtime.sdk import Client, Session
from tests.server_process import server_process

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

CODES = np.arange(25 * 8, dtype="<u2").reshape(25, 8) % 1024


async def converse(session: Session) -> None:
    await session.add_user("A table for tonight?", CODES.tobytes())
    await session.say("Of course! For how many?").wait()
    reply = session.say("I have booked one for two, at the window, where you can see the sea.")
    async for _ in reply:
        if reply.taken_ms >= 800:
            await reply.interrupt()


async def test_a_capsule_moves_a_session_to_another_process():
    with server_process("--fake") as (here, _), server_process("--fake") as (there, _):
        async with Client(here, voice="alto") as session:
            await converse(session)
            left, capsule = await session.history(codes=True), await session.export()
        async with Client(there, capsule=capsule) as session:
            assert await session.history(codes=True) == left
            assert session.started.voice == "alto"
            done = await session.say("Shall I confirm?").wait()
            assert done.status == "completed"
            assert len(await session.history()) == len(left) + 1
    assert [item.audio_ms > 0 for item in left] == [True] * 3


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
async def test_a_dialogue_survives_the_end_of_its_server(eventually, end):
    """SIGKILL: what was kept after each turn carries on. SIGTERM: the server says it is leaving."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    keep_sound = end == signal.SIGKILL
    with server_process("--fake", "--port", port) as (url, pid):
        client = Client(url, keep_sound=keep_sound, resume_s=120)
        session = await client.__aenter__()
        await converse(session)
        await session.history()
        if keep_sound:
            await eventually(lambda: session.link.core.mirror.is_carried)
        left, first_id = await session.history(codes=True), session.started.session_id
        os.kill(pid, end)
        await eventually(lambda: not session.link._is_open.is_set())
    with server_process("--fake", "--port", port):
        await eventually(lambda: session.started.session_id != first_id)
        assert await session.history(codes=True) == left
        assert (await session.say("Shall I confirm?").wait()).status == "completed"
        await client.__aexit__(None, None, None)
