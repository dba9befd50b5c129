"""The SDK against a real server: streaming text in, sound out, barge-in, history, loss."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import numpy as np
import pytest

from engine import api
from engine.fake import FakeScript
from engine.index_sound import read_ramp
from realtime.protocol.limits import DEFAULT_LIMITS
from realtime.protocol.messages import Generation, NewItem
from realtime.sdk import Client, ResponseFailed, ServerRefused, StreamInterrupted
from realtime.sdk.client import socket_url

pytestmark = pytest.mark.anyio

RAMP = FakeScript(sound="ramp")
TEXT = "Good evening, and welcome to the show. Tonight we have a guest."


def indices(sound: bytes) -> list[int]:
    return read_ramp(np.frombuffer(sound, "<i2")).tolist()


async def words(text: str = TEXT) -> AsyncIterator[str]:
    for word in text.split():
        yield word + " "
        await asyncio.sleep(0)


async def test_every_sample_of_a_streamed_reply_arrives_once(run_server):
    server = run_server(RAMP)
    async with Client(server.base_url) as session:
        assert session.rate_hz == 24000
        for reply in (session.say(TEXT), session.say(words())):
            sound = b"".join([piece async for piece in reply])
            assert indices(sound) == [n % 65535 for n in range(len(sound) // 2)]
            assert reply.done.status == "completed"
            assert reply.done.audio_ms == reply.taken_ms == len(sound) / 48


async def test_words_come_with_their_times(run_server):
    server = run_server(RAMP)
    async with Client(server.base_url, timestamps="words") as session:
        reply = session.say(words())
        done = await reply.wait()
        assert [word for word, _, _ in reply.words] == TEXT.split()
        ends = [end_ms for _, _, end_ms in reply.words]
        assert ends == sorted(ends)
        assert ends[-1] <= done.audio_ms


async def test_sound_comes_while_text_is_still_being_written(run_server):
    server = run_server(RAMP)
    heard = asyncio.Event()

    async def waits_for_sound() -> AsyncIterator[str]:
        yield TEXT
        await heard.wait()
        yield " That is all."

    async with Client(server.base_url) as session:
        async for _ in session.say(waits_for_sound()):
            heard.set()


async def test_an_interrupt_ends_the_iteration_and_history_keeps_what_was_heard(run_server):
    server = run_server(replace(RAMP, step_s=0.002))
    async with Client(server.base_url) as session:
        await session.add_user("Who is there?")
        reply = session.say(words("one two three four five six seven eight nine ten " * 20))
        heard = 0
        async for piece in reply:
            heard += len(piece) // 2
            if heard >= 24000:
                done = await reply.interrupt()
        assert (done.status, done.heard_ms, done.heard_source) == ("cancelled", 1040, "client")
        assert heard == 13 * 1920
        user, assistant = await session.history()
        assert (user.role, user.text) == ("user", "Who is there?")
        assert assistant.audio_ms == 1040
        assert assistant.text.startswith("one two")
        assert len(assistant.text) < len(assistant.generated_text)
        assert len(b"".join([piece async for piece in session.say("Go on.")])) > 0


async def test_user_codes_and_settings_reach_the_engine(run_server):
    server = run_server(RAMP)
    codes = np.arange(5 * 8, dtype="<u2").reshape(5, 8)
    generation = Generation(temperature=0, seed=7)
    async with Client(server.base_url, generation=generation) as session:
        item = await session.add_user("Hm?", codes.tobytes())
        assert item.audio_ms == 400
        await session.say("Yes.").wait()
        (kept,) = [i for i in await session.history(codes=True) if i.role == "user"]
        assert kept.audio.codes == codes.tobytes()
    opened = next(c for _, c in server.engine.log if isinstance(c, api.Open))
    assert opened.sampling.temperature == 0
    assert (opened.grid[:, 1:] == codes[0]).all(axis=1).any()


async def test_replies_beside_the_conversation_leave_no_trace(run_server):
    server = run_server(RAMP)
    async with Client(server.base_url) as session:
        filler, reply = session.say("Let me see.", context="none"), session.say(TEXT)
        await asyncio.gather(filler.wait(), reply.wait())
        assert [item.text for item in await session.history()] == [TEXT]


async def test_cancelling_one_reply_leaves_the_next_alone(run_server):
    server = run_server(replace(RAMP, step_s=0.002))
    async with Client(server.base_url) as session:
        first, second = session.say(words("word " * 50)), session.say("And this one stays.")
        assert (await first.cancel()).status == "cancelled"
        assert (await second.wait()).status == "completed"


async def test_an_unknown_voice_is_told_and_the_session_goes_on(run_server):
    server = run_server(RAMP)
    async with Client(server.base_url) as session:
        with pytest.raises(ResponseFailed, match="nobody") as failed:
            await session.say("Hello.", voice="nobody").wait()
        assert failed.value.code == "voice_not_found"
        assert (await session.say("Hello.").wait()).status == "completed"


async def test_a_failed_row_raises_where_it_is_listened_to(run_server):
    server = run_server(replace(RAMP, fail_after_frames=1))
    async with Client(server.base_url) as session:
        with pytest.raises(ResponseFailed, match="internal"):
            async for _ in session.say(TEXT):
                pass


async def test_a_text_source_that_fails_cancels_its_reply_and_only_that(run_server, eventually):
    server = run_server(RAMP)

    async def broken() -> AsyncIterator[str]:
        yield TEXT
        raise LookupError("the language model is gone")

    async with Client(server.base_url) as session:
        with pytest.raises(LookupError, match="is gone"):
            async for _ in session.say(broken()):
                pass
        assert (await session.say("Hello.").wait()).status == "completed"
        await eventually(lambda: not server.services.bridge.busy)


async def test_too_much_text_fails_the_reply_and_the_session_goes_on(running_server):
    async with Client(running_server.base_url) as session:
        with pytest.raises(ResponseFailed, match="8000"):
            async for _ in session.say("word " * 2000):
                pass
        reply = session.say("Short again.")
        async for _ in reply:
            pass
        assert reply.done.status == "completed"


async def test_leaving_the_block_ends_what_is_being_said(run_server, eventually):
    server = run_server(replace(RAMP, block_after_frames=0))

    async def endless() -> AsyncIterator[str]:
        yield "word " * 20
        await asyncio.Event().wait()

    async with Client(server.base_url) as session:
        reply = session.say(endless())
        await eventually(lambda: server.services.bridge.busy)
    with pytest.raises(StreamInterrupted):
        await reply.wait()
    await eventually(lambda: not server.services.bridge.busy)


async def test_a_closed_socket_is_not_a_finished_reply(run_server):
    server = run_server(replace(RAMP, block_after_frames=2))
    async with Client(server.base_url, resume_s=0) as session:
        reply = session.say(TEXT)
        stream = aiter(reply)
        await anext(stream)
        session.link._websocket.transport.abort()
        with pytest.raises(StreamInterrupted, match="1006"):
            async for _ in stream:
                pass
        with pytest.raises(StreamInterrupted):
            await session.history()


async def test_a_refusal_says_why(run_server):
    server = run_server(RAMP, max_sessions=1)
    async with Client(server.base_url):
        with pytest.raises(ServerRefused, match="too many sessions") as refused:
            await Client(server.base_url).__aenter__()
        assert refused.value.status == 429
    with pytest.raises(ServerRefused, match="nobody") as refused:
        await Client(server.base_url, voice="nobody").__aenter__()
    assert refused.value.code == "voice_not_found"
    with pytest.raises(ServerRefused, match="cannot connect"):
        await Client("http://127.0.0.1:9").__aenter__()


async def test_a_given_history_is_there_from_the_start(run_server):
    server = run_server(RAMP)
    history = (NewItem(role="user", text="Remember me?"),)
    async with Client(server.base_url, history=history) as session:
        assert [item.text for item in await session.history()] == ["Remember me?"]


@pytest.mark.parametrize(
    ("url", "socket"),
    [
        ("http://a:8000", "ws://a:8000/v1/speech"),
        ("https://a/", "wss://a/v1/speech"),
        ("ws://a/v1/speech?x=1", "ws://a/v1/speech?x=1"),
    ],
)
def test_any_address_of_the_server_will_do(url: str, socket: str):
    assert socket_url(url) == socket


def test_something_else_is_not_an_address():
    with pytest.raises(ValueError, match=r"'localhost:8000' .* http://127"):
        socket_url("localhost:8000")


async def test_an_iterator_of_single_characters_is_sent_no_faster_than_the_server_takes_it(
    running_server,
):
    limits = replace(DEFAULT_LIMITS, text_deltas_per_s=2000, text_delta_burst=20)
    services = running_server.services
    services.session_config = replace(services.session_config, limits=limits)

    async def characters():
        for character in TEXT:
            yield character

    async with Client(running_server.base_url) as session:
        async for _ in session.say(characters()):
            pass
        assert [item.text for item in await session.history()] == [TEXT]


async def test_markdown_is_spoken_as_words_and_remembered_as_it_was_written(run_server):
    server = run_server(RAMP)
    async with Client(server.base_url, normalize=True) as session:
        assert session.started.normalize
        reply = session.say("It costs **$5**.")
        assert [sound async for sound in reply]
        item = (await session.history())[0]
    assert (item.text, item.spoken_text) == ("It costs **$5**.", "It costs five dollars.")
