"""The SDK with sound of other formats, and with what the user says."""

import numpy as np
import opuslib
import pytest

from engine import api
from engine.index_sound import chirp
from realtime.sdk import AudioRequest, Client, InputRequest, ResponseFailed
from realtime.server.audio.samples import decode_samples, encode_samples

pytestmark = pytest.mark.anyio

TEXT = "Good evening, and welcome to the show."


async def test_a_reply_in_another_format(running_server):
    audio = AudioRequest(codec="alaw", sample_rate=16000)
    async with Client(running_server.base_url, audio=audio) as session:
        assert session.rate_hz == 16000
        reply = session.say(TEXT)
        sound = b"".join([piece async for piece in reply])
        assert reply.done.audio_ms == len(sound) / 16
        assert reply.taken_ms == pytest.approx(reply.done.audio_ms)
    pcm = decode_samples("alaw", sound)
    assert np.abs(pcm - chirp(0, len(pcm), 16000))[200:-200].max() < 0.03


async def test_a_reply_in_opus_comes_packet_by_packet(running_server):
    async with Client(running_server.base_url, audio=AudioRequest(codec="opus")) as session:
        reply = session.say(TEXT)
        decoder, pre_skip = opuslib.Decoder(48000, 1), session.started.audio.pre_skip
        pcm = b"".join([decoder.decode(packet, 960) async for packet in reply])
        assert reply.taken_ms == pytest.approx(reply.done.audio_ms)
    heard = np.frombuffer(pcm, "<i2")[pre_skip:] / 32767
    total = round(reply.done.audio_ms * 48)
    assert np.corrcoef(heard[:total], chirp(0, total, 48000))[0, 1] > 0.95


async def test_what_the_user_says_is_in_the_history_and_the_reply_has_heard_it(run_server):
    server = run_server()
    audio = InputRequest(codec="mulaw", sample_rate=8000)
    async with Client(server.base_url, input_audio=audio) as session:
        for start in range(0, 16000, 700):
            part = chirp(start, min(700, 16000 - start), 8000)
            await session.send_user_audio(encode_samples("mulaw", part))
        committed = await session.commit_user_audio("Who is there?")
        assert committed.duration_ms == 2000
        await session.say(TEXT).wait()
        user, assistant = await session.history()
    assert (user.id, user.text, user.audio_ms) == (committed.item_id, "Who is there?", 2000)
    assert assistant.role == "assistant"
    opened = next(c for _, c in server.engine.log if isinstance(c, api.Open))
    assert (opened.grid[:, 1] < 1024).sum() >= 25


async def test_the_rate_of_what_the_user_says_may_change_between_two_turns(running_server):
    async with Client(running_server.base_url) as session:
        for rate_hz in (24_000, 8_000, 48_000):
            updated = await session.update(input_rate_hz=rate_hz)
            assert updated.input_audio.sample_rate == rate_hz
            await session.send_user_audio(bytes(2 * rate_hz))
            assert (await session.commit_user_audio("Hm?")).duration_ms == 1000
        await session.say(TEXT).wait()
        assert [i.audio_ms for i in await session.history() if i.role == "user"] == [1040] * 3
        await session.send_user_audio(bytes(960))
        with pytest.raises(ResponseFailed, match="48000 Hz has begun"):
            await session.update(input_rate_hz=16_000)


async def test_what_was_cleared_is_not_heard(running_server):
    async with Client(running_server.base_url) as session:
        await session.send_user_audio(bytes(48000))
        await session.clear_user_audio()
        with pytest.raises(ResponseFailed, match="bad_audio"):
            await session.commit_user_audio()
        assert await session.history() == ()


async def test_what_the_server_refused_is_raised_once(running_server):
    audio = InputRequest(codec="alaw", sample_rate=8000)
    async with Client(running_server.base_url, input_audio=audio) as session:
        for _ in range(61):
            await session.send_user_audio(bytes(8000))
        with pytest.raises(ResponseFailed, match="60 s of user audio"):
            await session.commit_user_audio()
        await session.send_user_audio(bytes(8000))
        assert (await session.commit_user_audio("Hello?")).duration_ms == 1000
