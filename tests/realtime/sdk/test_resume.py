"""The SDK over sockets that die: nothing lost, nothing twice, or the loss is told."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from random import Random
from urllib.parse import urlsplit

import numpy as np
import pytest

from engine import api
from engine.fake import FakeScript
from engine.index_sound import read_ramp
from realtime.protocol.messages import Item
from realtime.sdk import Client, Session, StreamInterrupted
from realtime.sdk import link as link_module
from realtime.session import ring

pytestmark = pytest.mark.anyio

RAMP = FakeScript(sound="ramp", chunk_ramp_frames=(1, 4, 15), step_s=0.001)
WORDS = "one two three four five six seven eight nine ten eleven twelve " * 6


def kill(session: Session) -> None:
    """The network goes; neither side is told by the other."""
    session.link._websocket.transport.abort()


def indices(sound: bytes) -> np.ndarray:
    return read_ramp(np.frombuffer(sound, "<i2"))


def told(items: tuple[Item, ...]) -> list[tuple[str, str, str, float]]:
    return [(item.id, item.role, item.text, item.audio_ms) for item in items]


async def spoken_words() -> AsyncIterator[str]:
    for word in WORDS.split():
        yield word + " "
        await asyncio.sleep(0.002)


async def killer(session: Session, random: Random, kills: int) -> None:
    """Cut the socket at random moments, also while the next one is being opened."""
    for _ in range(kills):
        for _ in range(random.randrange(12)):
            await asyncio.sleep(0.005)
        kill(session)


async def test_a_conversation_over_sockets_that_keep_dying(run_server):
    server = run_server(RAMP)
    random = Random(11)
    async with Client(server.base_url) as session:
        for turn in range(3):
            killing = asyncio.create_task(killer(session, random, 4), name="killer")
            await session.add_user(f"Question {turn}?")
            reply = session.say(spoken_words())
            sound = b"".join([piece async for piece in reply])
            await killing
            heard = indices(sound)
            np.testing.assert_array_equal(heard, np.arange(len(heard)) % 65535)
            assert reply.gaps == []
            assert (reply.done.status, reply.done.audio_ms) == ("completed", len(heard) / 24)
        kept = await session.history()
        assert told(session.items) == told(kept)
        texts = [item.text for item in session.items]
        assert session.started.resumed
    assert texts == [t for turn in range(3) for t in (f"Question {turn}?", WORDS)]
    opened = [c.row for _, c in server.engine.log if isinstance(c, api.Open)]
    assert len(opened) == 3
    for row in opened:
        ids = [
            i
            for _, c in server.engine.log
            if isinstance(c, api.Feed) and c.row == row
            for i in c.ids
        ]
        assert server.services.prompt.tokenizer.decode(ids) == WORDS


async def test_an_interrupt_on_a_dead_socket_counts_once(run_server):
    server = run_server(replace(RAMP, step_s=0.002))
    async with Client(server.base_url) as session:
        reply = session.say(WORDS)
        async for _ in reply:
            kill(session)
            done = await reply.interrupt(played_ms=80)
        assert (done.status, done.heard_ms) == ("cancelled", 80)
        after = session.say("Go on.")
        heard = indices(b"".join([piece async for piece in after]))
        np.testing.assert_array_equal(heard, np.arange(len(heard)))
        assert session.link.core._epoch == 1


async def test_user_audio_goes_on_where_it_was(run_server):
    server = run_server(RAMP)
    tone = (8000 * np.sin(np.arange(24000) / 10)).astype("<i2").tobytes()
    async with Client(server.base_url) as session:
        for at in range(0, len(tone), 4800):
            if at % 9600 == 0:
                kill(session)
            await session.send_user_audio(tone[at : at + 4800])
        committed = await session.commit_user_audio("Hm?")
        assert committed.duration_ms == 1000
        await session.say("Yes.").wait()
        assert len(await session.history()) == 2
        assert [(i.text, i.audio_ms > 0) for i in session.items] == [("Hm?", True), ("Yes.", True)]


async def test_sound_that_is_gone_is_told(run_server, eventually, monkeypatch):
    monkeypatch.setattr(ring, "MAX_AUDIO_MS", 400)
    server = run_server(replace(RAMP, step_s=0.0))
    async with Client(server.base_url) as session:
        reply = session.say(WORDS)
        stream = aiter(reply)
        sound = await anext(stream)
        link = session.link
        link._websocket.transport.pause_reading()
        made_ms = server.services.metrics.audio_s._value.get
        await eventually(lambda: made_ms() > 3)
        kill(session)
        sound += b"".join([piece async for piece in stream])
        done = reply.done
    heard = indices(sound)
    if reply.gaps:
        ((at_ms, lost_ms),) = reply.gaps
        at, lost = int(at_ms * 24), int(lost_ms * 24)
        expected = np.concatenate([np.arange(at), np.arange(at + lost, int(done.audio_ms * 24))])
    else:
        expected = np.arange(int(done.audio_ms * 24))
    np.testing.assert_array_equal(heard, expected % 65535)
    assert reply.gaps


async def test_a_session_that_is_gone_begins_anew_with_its_history(run_server, eventually):
    server = run_server(RAMP)
    async with Client(server.base_url, keep_sound=True) as session:
        await session.add_user("Any ideas?")
        await session.update(voice="male", normalize=True, input_rate_hz=8000)
        await session.say("Many of them.").wait()
        await eventually(lambda: session.link.core.mirror.is_carried and len(session.items) == 2)
        before, first_id = told(session.items), session.started.session_id
        running = session.say(WORDS)
        await eventually(lambda: running._sound.qsize() > 0)
        server.services.sessions.find(first_id).let_go()
        kill(session)
        with pytest.raises(StreamInterrupted, match="began anew"):
            await running.wait()
        assert session.started.session_id != first_id
        assert told(await session.history())[:2] == before
        assert (session.started.voice, session.started.normalize) == ("male", True)
        assert session.started.input_audio.sample_rate == 8000
        assert (await session.say("And more.").wait()).status == "completed"
        await session.history()
        assert [item.text for item in session.items][-1] == "And more."


async def test_a_network_that_swallows_everything_is_noticed(run_server, monkeypatch):
    """Sends succeed and nothing returns; the SDK asks every 5 s and waits 5 s for the answer.

    The server still counts the dead socket, and it is the only one that the key may have.
    """
    monkeypatch.setattr(link_module, "_PROBE_S", 0.05)
    server = run_server(RAMP, api_keys=("app:sk-0123456789abcdef",), max_sessions_per_key=1)
    address, key = urlsplit(server.base_url), "sk-0123456789abcdef"
    async with (
        hole(address.hostname, address.port) as (url, swallow),
        Client(url, api_key=key) as session,
    ):
        await session.add_user("Are you there?")
        monkeypatch.undo()  # the next socket is a good one
        monkeypatch.setattr(link_module, "_RETRY_STATUS", frozenset())  # and not turned away
        swallow()
        reply = session.say("Yes, still here, after all of that.")
        heard = indices(b"".join([piece async for piece in reply]))
        np.testing.assert_array_equal(heard, np.arange(len(heard)) % 65535)
        assert session.started.resumed
        first, _ = await session.history()
        assert first.text == "Are you there?"


@contextlib.asynccontextmanager
async def hole(host: str, port: int) -> AsyncIterator[tuple[str, Callable[[], None]]]:
    """A relay whose present connections can be made to swallow what comes, from both sides."""
    deaf: list[asyncio.Event] = []
    relays: set[asyncio.Task[None]] = set()

    async def pump(reader, writer, swallows: asyncio.Event) -> None:
        while data := await reader.read(65536):
            if not swallows.is_set():
                writer.write(data)

    async def relay(reader, writer) -> None:
        there, back = await asyncio.open_connection(host, port)
        deaf.append(swallows := asyncio.Event())
        with contextlib.closing(writer), contextlib.closing(back), contextlib.suppress(OSError):
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(pump(reader, back, swallows), name="up")
                pumps.create_task(pump(there, writer, swallows), name="down")

    def accept(reader, writer) -> None:
        relays.add(asyncio.create_task(relay(reader, writer), name="relay"))

    def swallow() -> None:
        for swallows in deaf:
            swallows.set()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", swallow
        for task in relays:
            task.cancel()
        await asyncio.gather(*relays, return_exceptions=True)


async def test_without_patience_a_loss_is_final(run_server):
    server = run_server(RAMP)
    async with Client(server.base_url, resume_s=0) as session:
        kill(session)
        with pytest.raises(StreamInterrupted):
            await session.say("Hello?").wait()


async def test_leaving_while_there_is_no_server_does_not_wait(run_server, eventually):
    server = run_server(RAMP)
    async with Client(server.base_url) as session:
        server.services.draining = True  # it answers 503 from now on
        kill(session)
        await eventually(lambda: not session.link._is_open.is_set())


async def test_events_can_be_followed(run_server):
    server = run_server(RAMP)
    async with Client(server.base_url) as session:
        news = session.events()
        following = asyncio.create_task(_types(news, "response.done"), name="follow")
        await asyncio.sleep(0)
        await session.say("Hello.").wait()
        kinds = await following
        kill(session)
        await session.add_user("Hm.")
        assert session.started.resumed
    assert (kinds[0], kinds[-1]) == ("response.started", "response.done")


async def _types(news: AsyncIterator[object], last: str) -> list[str]:
    kinds = []
    async for message in news:
        kinds.append(message.type)
        if kinds[-1] == last:
            break
    await news.aclose()
    return kinds
