"""`/v1/speech` over real sockets: every sample in order, and what each misuse is answered."""

import base64
import json
from contextlib import suppress
from dataclasses import replace
from random import Random

import numpy as np
import opuslib
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from engine import api
from engine.fake import FAKE_MODEL, FakeScript
from engine.index_sound import chirp, read_ramp
from realtime.protocol.frames import Flags, FrameType, unpack_packets
from realtime.server.audio import OpusUnavailable
from realtime.session.session import Session
from tests.realtime.server.raw_client import (
    AudioFrame,
    Got,
    RawClient,
    frames_of,
    pcm_of,
    raw_client,
    types_of,
)

pytestmark = pytest.mark.anyio

RAMP = FakeScript(sound="ramp", chunk_ramp_frames=(1, 4, 15))
TEXT = "The quick brown fox jumps over the lazy dog, and then it does so once more."


def rows(server, state: str) -> int:
    """How many rows the engine's last heartbeat says are in that state."""
    return getattr(server.services.bridge.stats, f"rows_{state}", 0)


@pytest.mark.parametrize("subprotocol", [None, "moss.v1.json", "moss.v1.msgpack"])
async def test_a_response_is_heard_sample_by_sample(run_server, subprotocol):
    server = run_server(RAMP)
    async with raw_client(server.ws_url, subprotocol) as client:
        assert client.websocket.subprotocol == subprotocol
        started = await client.start()
        assert started["audio"]["sample_rate"] == 24000
        await client.say("r1", TEXT)
        got = await client.until("response.done")
    assert types_of(got)[0] == "response.started"
    pcm = pcm_of(got)
    np.testing.assert_array_equal(read_ramp(pcm), np.arange(len(pcm)) % 65535)
    frames = frames_of(got)
    assert {frame.samples for frame in frames[:-1]} == {1920}
    assert [Flags.LAST_OF_RESPONSE in f.flags for f in frames].index(True) == len(frames) - 1
    assert got[-1]["audio_ms"] == got[-1]["sent_ms"] == len(pcm) / 24
    spoken = next(c for _, c in server.engine.log if isinstance(c, api.Feed))
    assert len(spoken.ids) > 0


async def test_opus_is_the_sound_from_its_first_sample_to_its_last(running_server):
    async with raw_client(running_server.ws_url) as client:
        started = await client.start("opus")
        await client.say("r1", TEXT)
        got = await client.until("response.done")
    frames = frames_of(got)
    assert {frame.type for frame in frames} == {FrameType.OPUS}
    decoder, pre_skip = opuslib.Decoder(48000, 1), started["audio"]["pre_skip"]
    packets = [packet for frame in frames for packet in unpack_packets(frame.payload)]
    pcm = np.frombuffer(b"".join(decoder.decode(p, 960) for p in packets), "<i2") / 32767
    total = sum(frame.samples for frame in frames)
    assert total == got[-1]["audio_ms"] * 48
    heard, expected = pcm[pre_skip : pre_skip + total], chirp(0, total, 48000)
    assert np.corrcoef(heard, expected)[0, 1] > 0.95
    assert np.corrcoef(heard[-960:], expected[-960:])[0, 1] > 0.9


async def test_inline_audio_and_short_frames(run_server):
    server = run_server(RAMP)
    async with raw_client(server.ws_url) as client:
        await client.start(audio={"transport": "inline", "frame_ms": 20})
        await client.say("r1", "Hi.")
        got = await client.until("response.done")
    audio = [message for message in got if message["type"] == "response.audio"]
    assert {message["samples"] for message in audio[:-1]} == {480}
    pcm = np.frombuffer(b"".join(base64.b64decode(m["data"]) for m in audio), "<i2")
    np.testing.assert_array_equal(read_ramp(pcm), np.arange(len(pcm)))


@pytest.mark.parametrize("codec", ["pcm_s16le", "opus"])
async def test_one_frame_of_the_engine_can_be_heard_while_it_is_blocked(run_server, codec):
    server = run_server(FakeScript(block_after_frames=1))
    async with raw_client(server.ws_url) as client:
        await client.start(codec)
        await client.say("r1", TEXT)
        got = await client.until("response.started")
        while not isinstance(got[-1], AudioFrame):
            got.append(await client.receive())
        assert got[-1].samples == (1920 if codec == "pcm_s16le" else 3840 - 312)


async def test_after_an_interrupt_nothing_old_is_sent_and_the_next_response_is_whole(run_server):
    server = run_server(replace(RAMP, step_s=0.002))
    async with raw_client(server.ws_url) as client:
        await client.start()
        await client.send("response.start", response_id="r1", text=TEXT)
        got = await client.until("response.started")
        while len(frames_of(got)) < 5:
            got.append(await client.receive())
        await client.send("interrupt", played={"response_id": "r1", "ms": 240})
        done = (await client.until("response.done"))[-1]
        assert (done["response_id"], done["status"], done["heard_ms"]) == ("r1", "cancelled", 240)
        await client.say("r2", "Go on.")
        after = await client.until("response.done")
    assert {frame.epoch for frame in frames_of(after)} == {1}
    pcm = pcm_of(after)
    np.testing.assert_array_equal(read_ramp(pcm), np.arange(len(pcm)))
    assert types_of(after)[:2] == ["item.created", "item.truncated"]


async def test_everything_may_be_sent_before_anything_is_read(running_server):
    async with raw_client(running_server.ws_url) as client:
        await client.send("session.start")
        for number in range(3):
            await client.say(f"r{number}", "Hello there.")
        ends = [(await client.until("response.done"))[-1] for _ in range(3)]
    assert [end["response_id"] for end in ends] == ["r0", "r1", "r2"]


async def test_refusals_are_http_answers_before_the_upgrade(run_server):
    server = run_server(max_sessions=1, cors_origins=("https://good.example",))

    refusals: list[str] = []
    retry_after: list[str | None] = []

    async def status(**options: object) -> int:
        try:
            async with connect(server.ws_url, **options):
                return 101
        except InvalidStatus as error:
            refusals.append(json.loads(error.response.body)["error"]["message"])
            retry_after.append(error.response.headers.get("Retry-After"))
            return error.response.status_code

    assert await status(origin="https://evil.example") == 403
    assert await status(origin="null") == 403
    assert await status(subprotocols=["other.v1"]) == 400
    assert await status(origin="https://good.example") == 101
    assert await status(origin=server.base_url) == 101
    async with raw_client(server.ws_url):
        assert await status() == 429
    server.services.draining = True
    assert await status() == 503
    assert len(refusals) == 5
    assert all(refusals)
    assert retry_after == [None, None, None, "2", "2"]


async def test_deflate_is_never_negotiated(running_server):
    async with connect(running_server.ws_url, compression="deflate") as websocket:
        assert "Sec-WebSocket-Extensions" not in websocket.response.headers


async def test_misuse_is_answered_and_the_socket_lives(running_server):
    async with raw_client(running_server.ws_url) as client:
        await client.websocket.send(AudioFrame(0x11, Flags.NONE, 0, 0, 0, 1, 0, b"\0\0").pack())
        assert (await client.receive())["type"] == "error"
        await client.websocket.send("not json")
        assert (await client.receive())["code"] == "bad_message"
        await client.send("response.start", response_id="r1")
        assert (await client.receive())["code"] == "not_started"
        await client.send("session.start", colour="blue")
        error = await client.receive()
        assert (error["code"], error["param"]) == ("invalid_field", "colour")
    async with raw_client(running_server.ws_url) as client:
        await client.start()
        await client.say("r1", "Still alive.")
        assert (await client.until("response.done"))[-1]["status"] == "completed"


async def test_a_two_mebibyte_message_closes_that_socket_only(running_server):
    async with raw_client(running_server.ws_url) as bystander:
        await bystander.start()
        async with raw_client(running_server.ws_url) as client:
            with suppress(ConnectionClosed):  # it may come while the message is still being sent
                await client.websocket.send("x" * (2 << 20))
            with pytest.raises(ConnectionClosed) as closed:
                await client.receive()
        assert closed.value.rcvd.code == 1009
        await bystander.say("r1", "Not me.")
        assert (await bystander.until("response.done"))[-1]["status"] == "completed"


async def test_invalid_utf8_closes_that_socket(running_server):
    async with raw_client(running_server.ws_url) as client:
        await client.websocket.send(b'{"type": "ping\xff"}', text=True)
        with pytest.raises(ConnectionClosed) as closed:
            await client.receive()
    assert closed.value.rcvd.code == 1007


class TestAClientThatVanishes:
    """Where sessions do not wait for their clients, its rows are cancelled at once."""

    async def vanish(self, client: RawClient) -> None:
        client.websocket.transport.abort()

    async def rows_are_cancelled(self, server, eventually, rows: int) -> None:
        def cancelled() -> set[int]:
            return {c.row for _, c in server.engine.log if isinstance(c, api.Cancel)}

        await eventually(lambda: len(cancelled()) == rows)
        opened = {c.row for _, c in server.engine.log if isinstance(c, api.Open)}
        assert cancelled() == opened
        await eventually(lambda: not server.services.bridge.busy and not server.services.sessions)

    async def test_while_it_waits_in_the_engines_queue(self, run_server, eventually):
        model = replace(FAKE_MODEL, capacity_rows=1)
        server = run_server(FakeScript(model=model, block_after_frames=0), resume_ttl_s=0)
        async with raw_client(server.ws_url) as first, raw_client(server.ws_url) as second:
            for number, client in enumerate((first, second)):
                await client.start()
                await client.say(f"r{number}", TEXT)
                await client.until("response.started")
            await eventually(lambda: rows(server, "queued") == 1)
            await self.vanish(second)
            await eventually(lambda: len(server.services.sessions) == 1)
            await self.vanish(first)
            await self.rows_are_cancelled(server, eventually, rows=2)

    async def test_during_prefill(self, run_server, eventually):
        server = run_server(FakeScript(block_after_frames=0), resume_ttl_s=0)
        async with raw_client(server.ws_url) as client:
            await client.start()
            await client.say("r1", TEXT)
            await client.until("response.started")
            await eventually(lambda: rows(server, "open") == 1)
            await self.vanish(client)
            await self.rows_are_cancelled(server, eventually, rows=1)

    async def test_while_it_is_spoken_to(self, run_server, eventually):
        server = run_server(FakeScript(never_end=True, step_s=0.002), resume_ttl_s=0)
        async with raw_client(server.ws_url) as client:
            await client.start()
            await client.say("r1", TEXT)
            while not isinstance(await client.receive(), AudioFrame):
                pass
            await self.vanish(client)
            await self.rows_are_cancelled(server, eventually, rows=1)

    async def test_while_it_reads_nothing(self, run_server, eventually):
        server = run_server(FakeScript(never_end=True), resume_ttl_s=0)
        async with raw_client(server.ws_url) as client:
            await client.start()
            client.websocket.transport.pause_reading()
            await client.say("r1", TEXT)
            await eventually(lambda: rows(server, "parked") == 1)
            await self.vanish(client)
            await self.rows_are_cancelled(server, eventually, rows=1)


async def test_a_slow_consumer_is_closed_with_4413_and_its_neighbour_hears_everything(
    run_server, eventually
):
    server = run_server(replace(RAMP, step_s=0.001), slow_consumer_s=0.3)
    async with raw_client(server.ws_url) as slow, raw_client(server.ws_url) as neighbour:
        await slow.start()
        await neighbour.start()
        slow.websocket.transport.pause_reading()
        long_text = "word " * 1500
        await slow.say("r1", long_text)
        await neighbour.say("r1", TEXT)
        pcm = pcm_of(await neighbour.until("response.done"))
        np.testing.assert_array_equal(read_ramp(pcm), np.arange(len(pcm)) % 65535)
        await eventually(lambda: server.services.sessions.attached == 1)
        slow.websocket.transport.resume_reading()
        with pytest.raises(ConnectionClosed) as closed:
            await slow.until("response.done")
    assert closed.value.rcvd.code == 4413
    assert server.services.metrics.slow_consumers._value.get() == 1


async def test_a_reader_that_stops_holds_back_the_engine_and_loses_nothing(run_server, eventually):
    server = run_server(RAMP)
    async with raw_client(server.ws_url) as client:
        await client.start(flow={"mode": "none", "max_ahead_ms": 2000})
        client.websocket.transport.pause_reading()
        await client.say("r1", "word " * 400)
        await eventually(lambda: rows(server, "parked") == 1)
        client.websocket.transport.resume_reading()
        pcm = pcm_of(await client.until("response.done"))
    assert len(pcm) > 20 * 24000
    np.testing.assert_array_equal(read_ramp(pcm), np.arange(len(pcm)) % 65535)


async def test_a_dead_engine_fails_its_responses_and_the_session_goes_on(run_server):
    server = run_server(FakeScript(fail_after_frames=2))
    async with raw_client(server.ws_url) as client:
        await client.start()
        await client.say("r1", TEXT)
        done = (await client.until("response.done"))[-1]
        assert (done["status"], done["error"]["code"]) == ("failed", "internal")
        await client.send("ping", t=5)
        assert (await client.until("pong"))[-1]["t"] == 5


async def test_shutdown_ends_sessions_with_a_word(run_server):
    server = run_server()
    async with raw_client(server.ws_url) as client:
        await client.start()
        server.stop()
        got = await client.until("session.closed")
        assert got[-1]["reason"] == "shutdown"
        with pytest.raises(ConnectionClosed) as closed:
            await client.receive()
    assert closed.value.rcvd.code in (1001, 1012)


async def test_a_bug_in_one_session_closes_that_socket_and_stops_its_rows(
    run_server, eventually, monkeypatch, caplog
):
    server = run_server(FakeScript(never_end=True, step_s=0.002))
    engine_event = Session.engine_event

    def broken(self: Session, event: api.Event, now_ms: int) -> list[object]:
        if isinstance(event, api.Frames) and event.first_frame == 3:
            raise ZeroDivisionError("a bug")
        return engine_event(self, event, now_ms)

    async with raw_client(server.ws_url) as client:
        await client.start()
        monkeypatch.setattr(Session, "engine_event", broken)
        await client.say("r1", TEXT)
        with pytest.raises(ConnectionClosed) as closed:
            await client.until("response.done")
    assert closed.value.rcvd.code == 1011
    assert "a bug" in caplog.text
    await eventually(lambda: not server.services.bridge.busy and not server.services.sessions)


@pytest.mark.slow
async def test_the_shipped_voice_speaks_through_the_whole_server(run_server):
    server = run_server(None)
    async with raw_client(server.ws_url, "moss.v1.msgpack") as client:
        started = await client.start("opus", generation={"temperature": 0})
        assert started["voice"]
        await client.say("r1", "Hello! How are you today?")
        got = await client.until("response.done")
        await client.send("response.start", response_id="r2", text="word " * 100)
        await client.until("response.started")
        while not isinstance(await client.receive(), AudioFrame):
            pass
        await client.send("interrupt")
        done = (await client.until("response.done"))[-1]
    assert got[-1]["status"] == "completed"
    assert sum(frame.samples for frame in frames_of(got)) == got[-1]["audio_ms"] * 48 > 0
    assert done["status"] == "cancelled"


async def test_without_libopus_a_session_gets_pcm_and_opus_is_refused(run_server, monkeypatch):
    def missing() -> None:
        raise OpusUnavailable("there is no libopus")

    monkeypatch.setattr("realtime.server.audio.opus.load_opuslib", missing)
    server = run_server()
    async with raw_client(server.ws_url) as client:
        await client.send("session.start", audio={"codec": "opus"})
        assert (await client.receive())["code"] == "unsupported_codec"
    async with raw_client(server.ws_url) as client:
        await client.start("pcm_s16le")
        await client.say("r1", "Hello.")
        assert (await client.until("response.done"))[-1]["status"] == "completed"


async def test_whenever_an_interrupt_comes_its_response_is_over_with_its_done(
    run_server, eventually
):
    server = run_server(replace(RAMP, step_s=0.001))
    random = Random(7)
    async with raw_client(server.ws_url) as client:
        await client.start()
        got: list[Got] = []
        for number in range(40):
            await client.send("response.start", response_id=f"r{number}", text=TEXT)
            for _ in range(random.randrange(12)):
                got.append(await client.receive())
            await client.send("interrupt")
        await client.say("last", "That is all.")
        while not (got and isinstance(got[-1], dict) and got[-1].get("response_id") == "last"):
            got.append(await client.receive())
        got += await client.until("response.done")
    streams = {m["stream"]: m["response_id"] for m in got if _is(m, "response.started")}
    ended: set[str] = set()
    for message in got:
        if isinstance(message, AudioFrame):
            assert streams[message.stream] not in ended
        elif message["type"] == "response.done":
            assert message["response_id"] not in ended
            ended.add(message["response_id"])
    assert len(ended) == 41
    await eventually(lambda: not server.services.bridge.busy)


def _is(message: Got, kind: str) -> bool:
    return isinstance(message, dict) and message["type"] == kind
