"""Sockets that die under a session, and those that take it up: nothing lost, nothing twice."""

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed

from engine import api
from engine.fake import FakeScript
from engine.index_sound import read_ramp
from realtime.protocol.frames import AudioFrame, Flags
from tests.realtime.server.raw_client import RawClient, frames_of, pcm_of, raw_client, types_of

pytestmark = pytest.mark.anyio

RAMP = FakeScript(sound="ramp", chunk_ramp_frames=(1, 4, 15))
SLOW_RAMP = replace(RAMP, step_s=0.002)
TEXT = "The quick brown fox jumps over the lazy dog, and then it does so once more."


class Memory:
    """What a client knows of its session, and so can say when it comes back."""

    def __init__(self, started: dict[str, Any]) -> None:
        self.session_id = started["session_id"]
        self.token = started["resume_token"]
        self.events = [started["n"]]
        self.received: dict[int, int] = {}

    def note(self, got: dict[str, Any] | AudioFrame) -> None:
        if isinstance(got, AudioFrame):
            assert got.seq == self.received.get(got.stream, -1) + 1
            self.received[got.stream] = got.seq
        elif got["type"] == "session.started":
            self.token = got["resume_token"]
        elif got["type"] != "response.audio":
            self.events.append(got["n"])

    async def resume(self, client: RawClient, **changes: Any) -> dict[str, Any]:
        resume = {
            "token": self.token,
            "received": list(self.received.items()),
            "after_event": self.events[-1],
        }
        fields = {"session_id": self.session_id, "resume": resume | changes.pop("resume", {})}
        await client.send("session.start", m=1, **fields | changes)
        answer = await client.receive()
        client.sent = answer.get("last_m", 0)
        if answer["type"] == "session.started":
            self.note(answer)
        return answer


def abort(client: RawClient) -> None:
    client.websocket.transport.abort()


async def test_what_a_dead_socket_swallowed_comes_again(run_server):
    server = run_server(SLOW_RAMP)
    random, got, kills = Random(3), [], 0
    async with raw_client(server.ws_url) as client:
        memory = Memory(await client.start())
        await client.say("r1", TEXT * 3)
        await client.until("response.started")
        memory.events.append(2)
        memory.received.clear()
        abort(client)
    while "response.done" not in types_of(got):
        async with raw_client(server.ws_url) as client:
            started = await memory.resume(client)
            assert (started["resumed"], started["last_m"], "gaps" in started) == (True, 2, False)
            for _ in range(random.randrange(1, 25)):
                got.append(await client.receive())
                memory.note(got[-1])
                if types_of(got)[-1] == "response.done":
                    break
            abort(client)
            kills += 1
    assert kills > 2
    assert memory.events == list(range(1, memory.events[-1] + 1))
    pcm = pcm_of(got)
    np.testing.assert_array_equal(read_ramp(pcm), np.arange(len(pcm)) % 65535)
    assert any(Flags.REPLAYED in frame.flags for frame in frames_of(got))
    assert sum(isinstance(c, api.Open) for _, c in server.engine.log) == 1


async def test_a_newer_socket_takes_over_and_the_old_one_is_told(run_server, eventually):
    server = run_server(SLOW_RAMP)
    async with raw_client(server.ws_url) as old, raw_client(server.ws_url) as new:
        memory = Memory(await old.start())
        await old.say("r1", TEXT)
        for got in await old.until("response.started"):
            memory.note(got)
        assert (await memory.resume(new))["resumed"]
        pcm = pcm_of(await new.until("response.done"))
        with pytest.raises(ConnectionClosed) as closed:
            await old.until("response.done")
        assert closed.value.rcvd.code == 4409
        await old.websocket.wait_closed()
        await new.send("ping", t=1)
        assert (await new.until("pong"))[-1]["t"] == 1
        assert server.services.sessions.attached == 1
    np.testing.assert_array_equal(read_ramp(pcm), np.arange(len(pcm)) % 65535)


async def test_what_cannot_be_resumed_says_why_and_the_socket_can_start_anew(run_server):
    server = run_server(RAMP)
    async with raw_client(server.ws_url) as client:
        memory = Memory(await client.start())
        abort(client)
    refusals = [
        ({"session_id": "sess_nobody"}, "session_not_found", "session_id"),
        ({"resume": {"token": "guess"}}, "resume_rejected", "resume.token"),
    ]
    async with raw_client(server.ws_url) as client:
        for changes, code, param in refusals:
            error = await memory.resume(client, **changes)
            assert (error["type"], error["code"], error["param"]) == ("error", code, param)
            assert (error["scope"], error["retryable"]) == ("connection", False)
        await client.send("session.start")
        started = await client.receive()
        assert (started["type"], started["resumed"]) == ("session.started", False)
        assert started["session_id"] != memory.session_id
        assert (await memory.resume(client))["code"] == "bad_message"
    async with raw_client(server.ws_url, "moss.v1.msgpack") as client:
        assert "same subprotocol" in (await memory.resume(client))["message"]
    async with raw_client(server.ws_url) as client:
        assert (await memory.resume(client))["resumed"]


async def test_a_client_that_says_goodbye_is_not_waited_for(run_server, eventually):
    server = run_server(FakeScript(never_end=True, step_s=0.002))
    async with raw_client(server.ws_url) as client:
        memory = Memory(await client.start())
        await client.say("r1", TEXT)
        await client.until("response.started")
        await client.websocket.close(1000)
    await eventually(lambda: not server.services.sessions and not server.services.bridge.busy)
    async with raw_client(server.ws_url) as client:
        assert (await memory.resume(client))["code"] == "session_not_found"


@pytest.mark.slow
async def test_a_client_that_does_not_come_back_costs_a_parked_row_for_a_while(
    run_server, eventually
):
    server = run_server(FakeScript(never_end=True), resume_ttl_s=2)
    async with raw_client(server.ws_url) as client:
        await client.start(flow={"mode": "none", "max_ahead_ms": 2000})
        await client.say("r1", TEXT)
        await client.until("response.started")
        abort(client)
    await eventually(lambda: not server.services.sessions.attached)
    await eventually(lambda: server.services.bridge.stats.rows_parked == 1)
    assert len(server.services.sessions) == 1
    await eventually(lambda: not server.services.sessions and not server.services.bridge.busy)


async def test_a_slow_consumer_finds_its_session_again(run_server, eventually):
    server = run_server(RAMP, slow_consumer_s=0.2)
    async with raw_client(server.ws_url) as client:
        memory = Memory(await client.start())
        client.websocket.transport.pause_reading()
        await client.say("r1", "word " * 100)
        await eventually(lambda: not server.services.sessions.attached)
        abort(client)
    async with raw_client(server.ws_url) as client:
        assert (await memory.resume(client))["resumed"]
        pcm = pcm_of(await client.until("response.done"))
    np.testing.assert_array_equal(read_ramp(pcm), np.arange(len(pcm)) % 65535)


async def test_a_kept_session_waits_for_its_client(run_server):
    server = run_server(RAMP)
    async with raw_client(server.ws_url) as client:
        memory = Memory(await client.start())
        await client.send("session.close", keep=True)
        with pytest.raises(ConnectionClosed) as closed:
            await client.receive()
        assert closed.value.rcvd.code == 1000
    async with raw_client(server.ws_url) as client:
        assert (await memory.resume(client))["resumed"]
        await client.say("r1", TEXT)
        assert (await client.until("response.done"))[-1]["status"] == "completed"


async def test_killed_sockets_leave_no_ghosts(run_server, eventually):
    server = run_server(RAMP, max_sessions=4)
    for _ in range(30):
        async with raw_client(server.ws_url) as client:
            await client.start()
            abort(client)
        await eventually(lambda: not server.services.sessions.attached)
    await eventually(lambda: len(server.services.sessions) == 4)


async def test_a_draining_server_warns_finishes_and_ends(run_server):
    server = run_server(SLOW_RAMP, drain_s=20)
    async with raw_client(server.ws_url) as client:
        await client.start()
        await client.say("r1", TEXT)
        await client.until("response.started")
        server.stop()
        got = await client.until("session.closed")
        with pytest.raises(ConnectionClosed) as closed:
            await client.receive()
    assert closed.value.rcvd.code in (1001, 1012)
    messages = [m for m in got if isinstance(m, dict)]
    warned, done = (
        next(m for m in messages if m["type"] == kind)
        for kind in ("session.going_away", "response.done")
    )
    assert (warned["in_ms"], warned["reason"]) == (20_000, "drain")
    assert (done["status"], messages.index(warned) < messages.index(done)) == ("completed", True)
    pcm = pcm_of(got)
    np.testing.assert_array_equal(read_ramp(pcm), np.arange(len(pcm)) % 65535)
