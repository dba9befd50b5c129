"""At most half a second of a stream, or 8 KiB, lies in the server's buffers."""

import socket

import pytest
from websockets.asyncio.client import connect

from engine.fake import FakeScript
from realtime.server.transport import SpeechSocketProtocol, buffer_bytes
from tests.realtime.server.raw_client import raw_client

pytestmark = pytest.mark.anyio


def test_half_a_second_or_8_kib_whichever_is_more():
    assert buffer_bytes(4000) == 8192
    assert buffer_bytes(48_000) == 24_000


@pytest.mark.parametrize(("codec", "limit"), [("pcm_s16le", 24_000), ("opus", 8192)])
async def test_a_reader_that_stops_leaves_little_in_the_buffers(
    run_server, eventually, monkeypatch, codec, limit
):
    links: list[SpeechSocketProtocol] = []
    run_asgi = SpeechSocketProtocol.run_asgi

    async def remember(self: SpeechSocketProtocol) -> None:
        links.append(self)
        await run_asgi(self)

    monkeypatch.setattr(SpeechSocketProtocol, "run_asgi", remember)
    server = run_server(FakeScript(never_end=True, chunk_ramp_frames=(15,)))
    async with raw_client(server.ws_url) as client:
        await client.start(codec)
        client.websocket.transport.pause_reading()
        await client.say("r1", "Hello there.")
        await eventually(lambda: not links[0].writable.is_set())
        sock = links[0].transport.get_extra_info("socket")
        kernel = sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        assert kernel + links[0].transport.get_write_buffer_size() <= limit
        client.websocket.transport.abort()


async def test_a_peer_that_never_answers_the_close_is_cut(run_server, eventually, monkeypatch):
    monkeypatch.setattr("realtime.server.transport.ABORT_AFTER_S", 0.05)
    server = run_server(FakeScript(never_end=True), slow_consumer_s=0.1)
    async with connect(server.ws_url, compression=None) as websocket:
        websocket.transport.pause_reading()
        await websocket.send('{"type": "session.start", "m": 1, "audio": {"codec": "pcm_s16le"}}')
        await websocket.send(
            '{"type": "response.start", "m": 2, "response_id": "r", "text": "Hi.", "end": true}'
        )
        await eventually(lambda: server.services.metrics.slow_consumers._value.get() == 1)
        await eventually(lambda: not server.server.server_state.connections)
        websocket.transport.abort()
