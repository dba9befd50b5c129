"""A barge-in over real sockets, also of a client that reads nothing, and on the real engine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engine.fake import FakeScript
from engine.index_sound import read_ramp
from realtime.protocol.messages import Generation, Interrupt, Played
from realtime.sdk import Client, Session
from tests.realtime.server.raw_client import frames_of, pcm_of, raw_client, types_of

pytestmark = pytest.mark.anyio

RAMP = FakeScript(sound="ramp", chunk_ramp_frames=(1, 4, 15), step_s=0.001)


async def test_a_client_that_reads_nothing_finds_little_old_sound_when_it_reads_again(
    run_server, eventually
):
    server = run_server(RAMP)
    async with raw_client(server.ws_url) as client:
        await client.start(flow={"mode": "none", "max_ahead_ms": 30_000})
        client.websocket.transport.pause_reading()
        await client.say("r1", "word " * 400)
        handed_out_s = server.services.metrics.audio_s._value.get
        bridge = server.services.bridge
        await eventually(lambda: bridge.stats and bridge.stats.rows_parked == 1)
        await client.send("interrupt", played={"response_id": "r1", "ms": 500})
        await eventually(lambda: is_silent(server))
        handed_out = handed_out_s()
        await client.say("r2", "Go on.")
        client.websocket.transport.resume_reading()
        got = await client.until("response.done")
        rest = await client.until("response.done")
    old_s = sum(frame.samples for frame in frames_of(got)) / 24_000
    assert old_s <= handed_out + 0.08  # one piece may have been on its way
    assert got[-1]["sent_ms"] == pytest.approx(1000 * old_s)
    assert got[-1]["audio_ms"] > got[-1]["sent_ms"]  # the rest was thrown away
    assert {frame.epoch for frame in frames_of(rest)} == {1}
    pcm = pcm_of(rest)
    np.testing.assert_array_equal(read_ramp(pcm), np.arange(len(pcm)) % 65535)


def is_silent(server) -> bool:
    (live,) = server.services.sessions
    return not live._session.is_speaking


async def test_what_a_dead_socket_swallowed_does_not_come_again_after_an_interrupt(
    run_server, eventually
):
    server = run_server(RAMP)
    async with raw_client(server.ws_url) as client:
        started = await client.start()
        await client.say("r1", "word " * 40)
        await client.until("response.started")
        await eventually(lambda: server.services.metrics.audio_s._value.get() > 1)
        client.websocket.transport.abort()
    await eventually(lambda: not server.services.sessions.attached)
    async with raw_client(server.ws_url) as client:
        resume = {"token": started["resume_token"], "received": [], "after_event": 2}
        await client.send("session.start", session_id=started["session_id"], resume=resume)
        client.sent = 2
        await client.send("interrupt", played={"response_id": "r1", "ms": 0})
        got = await client.until("response.done")
        await client.send("ping", t=1)
        assert "audio" not in types_of(await client.until("pong"))
        await client.say("r2", "Go on.")
        after = await client.until("response.done")
    assert got[-1]["status"] == "cancelled"
    assert {frame.epoch for frame in frames_of(after)} == {1}


@pytest.mark.slow
async def test_the_next_reply_sounds_as_if_the_unheard_had_never_been(run_server):
    """On the real engine: after a barge-in, and in a session that was only given what was kept."""
    server = run_server(None, deterministic=True)
    generation = Generation(seed=3)
    async with Client(server.base_url) as session:
        await session.add_user("What is there to see?")
        reply = session.say("There is a tower, a river and a hill, and all of it is near here.")
        async for _ in reply:
            if reply.taken_ms >= 1000:
                await reply.interrupt()
        await session.add_user("And to eat?")
        capsule, items = await session.export(), await session.history()
        here = await sound(session, generation)
    assert [item.audio_ms for item in items] == [0, 1040, 0]
    async with Client(server.base_url, capsule=capsule) as session:
        there = await sound(session, generation)
    assert len(here) == len(there) > 24_000
    assert np.abs(here - there).max() <= 2  # of 32767: codes are equal, sound to rounding


async def sound(session: Session, generation: Generation) -> np.ndarray:
    reply = session.say("Bread, cheese, and a good soup.", generation=generation)
    pcm = b"".join([piece async for piece in reply])
    return np.frombuffer(pcm, "<i2").astype(int)


async def test_interrupts_in_every_state_end_each_response_once(run_server, eventually):
    server = run_server(replace(RAMP, step_s=0.002))
    async with Client(server.base_url) as session:
        for text in ("", "Hm", "Well, this one has begun to speak by the time it is stopped."):
            reply = session.say(text + " ")
            queued = session.say("And this waits behind it.")
            await session.send(
                Interrupt(m=1, played=Played(response_id=reply.response_id, ms=-100))
            )
            for stopped in (reply, queued):
                done = await stopped.wait()
                assert (done.status, done.heard_ms) in (("cancelled", 0), ("completed", None))
        assert (await session.say("Go on.").wait()).status == "completed"
    await eventually(lambda: not server.services.bridge.busy)
