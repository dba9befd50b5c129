"""User audio over real sockets: what the engine gets to encode is what the user said."""

import numpy as np
import opuslib
import pytest
import soundfile
import torch

from engine import api
from engine.codec.codec import load_codec
from engine.fake import FAKE_MODEL
from engine.hub import DEFAULT_CODEC_DIR, DEFAULT_VOICES_DIR
from engine.index_sound import chirp
from realtime.protocol.frames import FRAME_TYPES, AudioFrame, Flags, pack_packets
from realtime.server.audio.samples import encode_samples
from tests.realtime.server.raw_client import RawClient, raw_client

pytestmark = pytest.mark.anyio

SPEECH_S = 2
MODEL_HZ, FRAME = FAKE_MODEL.rate_hz, FAKE_MODEL.samples_per_frame
CORRUPT_OPUS = b"\xfb\x41\xff"  # a length that is right, and more padding than there are bytes


async def send_frame(
    client: RawClient, codec: str, seq: int, payload: bytes, samples: int, flags: int = 0
) -> None:
    kind = 0x10 | FRAME_TYPES[codec]
    frame = AudioFrame(kind, Flags(flags), 0, seq, 0, samples, 0, payload)
    await client.websocket.send(frame.pack())


async def speak(client: RawClient, codec: str, rate_hz: int, seq: int = 0) -> int:
    """Say a chirp of two seconds in pieces of 20 ms; returns the next number."""
    step = rate_hz // 50
    for start in range(0, SPEECH_S * rate_hz, step):
        pcm = chirp(start, min(step, SPEECH_S * rate_hz - start), rate_hz)
        await send_frame(client, codec, seq, encode_samples(codec, pcm), len(pcm))
        seq += 1
    return seq


def encoded(server) -> np.ndarray:
    """All that the engine was given to encode."""
    return np.concatenate([c.pcm for _, c in server.engine.log if isinstance(c, api.Encode)])


@pytest.mark.parametrize("rate_hz", [8000, 16000, 24000, 44100, 48000])
@pytest.mark.parametrize("codec", ["pcm_s16le", "pcm_f32le", "mulaw", "alaw"])
async def test_every_sample_is_encoded_once_and_in_its_place(run_server, codec, rate_hz):
    server = run_server()
    audio = {"codec": codec, "sample_rate": rate_hz}
    async with raw_client(server.ws_url, "moss.v1.msgpack") as client:
        started = await client.start(input_audio=audio)
        assert started["input_audio"] == audio
        await speak(client, codec, rate_hz)
        await client.send("input_audio.commit", text="Any ideas?")
        committed = (await client.until("input_audio.committed"))[-1]
        item = (await client.until("item.created"))[-1]["item"]
    assert committed["duration_ms"] == item["audio_ms"] == 1000 * SPEECH_S
    assert committed["item_id"] == item["id"]
    pcm, expected = encoded(server), chirp(0, SPEECH_S * MODEL_HZ, MODEL_HZ)
    assert len(pcm) == len(expected)
    tolerance = 0.03 if codec in ("mulaw", "alaw") else 0.01
    assert np.abs(pcm - expected)[200:-200].max() < tolerance


@pytest.mark.parametrize(("rate_hz", "packed"), [(48000, True), (16000, False)])
async def test_opus_is_decoded_as_one_stream(run_server, rate_hz, packed):
    server = run_server()
    encoder, step = opuslib.Encoder(rate_hz, 1, "audio"), rate_hz // 50
    async with raw_client(server.ws_url) as client:
        await client.start(input_audio={"codec": "opus", "sample_rate": rate_hz})
        for seq in range(SPEECH_S * 25):
            pcm = [chirp((2 * seq + half) * step, step, rate_hz) for half in (0, 1)]
            packets = [encoder.encode(encode_samples("pcm_s16le", part), step) for part in pcm]
            if packed:
                await send_frame(client, "opus", seq, pack_packets(packets), 1920, Flags.PACKED)
            else:
                await send_frame(client, "opus", 2 * seq, packets[0], 960)
                await send_frame(client, "opus", 2 * seq + 1, packets[1], 960)
        await client.send("input_audio.commit")
        assert (await client.until("item.created"))[-1]["item"]["audio_ms"] == 2000
    pcm, delay = encoded(server), MODEL_HZ * 65 // 10_000  # the encoder's lookahead, 6.5 ms
    expected = chirp(0, SPEECH_S * MODEL_HZ, MODEL_HZ)
    assert len(pcm) == len(expected)
    assert np.corrcoef(pcm[delay:], expected[:-delay])[0, 1] > 0.95


async def test_corrupt_opus_is_an_error_and_the_rest_is_heard(run_server):
    server = run_server()
    encoder = opuslib.Encoder(48000, 1, "audio")
    async with raw_client(server.ws_url) as client:
        await client.start(input_audio={"codec": "opus"})
        good = encoder.encode(bytes(1920), 960)
        for seq, packet in enumerate([good, CORRUPT_OPUS, good, CORRUPT_OPUS, good]):
            await send_frame(client, "opus", seq, packet, 960)
        await client.send("input_audio.commit", text="Hello?")
        got = await client.until("item.created")
        errors = [message for message in got if message["type"] == "error"]
        assert [error["code"] for error in errors] == ["bad_audio"]
        assert "corrupt" in errors[0]["message"]
        assert got[-1]["item"]["text"] == "Hello?"
        await client.say("r1", "Hello.")
        assert (await client.until("response.done"))[-1]["status"] == "completed"


async def test_a_reply_pipelined_behind_the_commit_has_heard_it(run_server):
    server = run_server()
    async with raw_client(server.ws_url) as client:
        await client.start()
        await speak(client, "pcm_s16le", MODEL_HZ)
        await client.send("input_audio.commit", text="Any ideas?")
        await client.say("r1", "A walk.")
        assert (await client.until("response.done"))[-1]["status"] == "completed"
    opened = next(c for _, c in server.engine.log if isinstance(c, api.Open))
    pcm = encoded(server).reshape(-1, FRAME)
    levels = (np.abs(pcm).mean(axis=1) * 10000).astype(int) % FAKE_MODEL.codebook_size
    in_grid = opened.grid[:, 1][opened.grid[:, 1] < FAKE_MODEL.codebook_size]
    np.testing.assert_array_equal(in_grid[-len(levels) :], levels)


async def test_bad_frames_are_answered_and_the_session_lives(running_server):
    async with raw_client(running_server.ws_url) as client:
        await client.start()
        await send_frame(client, "pcm_s16le", 0, b"\1\2\3", 1)
        error = await client.receive()
        assert (error["type"], error["code"]) == ("error", "bad_audio")
        seq = await speak(client, "pcm_s16le", MODEL_HZ, seq=1)
        await send_frame(client, "pcm_s16le", seq + 1, b"\1\2", 1)
        gap = await client.receive()
        assert (gap["code"], gap["expected"]) == ("sequence_gap", seq)
        await client.send("input_audio.commit")
        assert (await client.until("item.created"))[-1]["item"]["audio_ms"] == 2000


@pytest.mark.parametrize("committed", [False, True])
async def test_a_client_that_vanishes_leaves_no_stream_behind(run_server, eventually, committed):
    server = run_server(resume_ttl_s=0)
    async with raw_client(server.ws_url) as client:
        await client.start()
        await speak(client, "pcm_s16le", MODEL_HZ)
        if committed:
            await client.send("input_audio.commit")
        await eventually(lambda: any(isinstance(c, api.Encode) for _, c in server.engine.log))
        client.websocket.transport.abort()
    await eventually(lambda: not server.services.sessions and not server.services.bridge.busy)
    await eventually(lambda: not server.engine._streams)


async def test_clear_and_begin_again(run_server, eventually):
    server = run_server()
    async with raw_client(server.ws_url) as client:
        await client.start(input_audio={"codec": "mulaw", "sample_rate": 8000})
        seq = await speak(client, "mulaw", 8000)
        await client.send("input_audio.clear")
        await speak(client, "mulaw", 8000, seq)
        await client.send("input_audio.commit")
        assert (await client.until("item.created"))[-1]["item"]["audio_ms"] == 2000
    streams = [c.stream for _, c in server.engine.log if isinstance(c, api.Encode)]
    last = [
        c.pcm for _, c in server.engine.log if isinstance(c, api.Encode) and c.stream == streams[-1]
    ]
    pcm = np.concatenate(last)
    assert np.abs(pcm - chirp(0, len(pcm), MODEL_HZ))[200:-200].max() < 0.03


@pytest.mark.slow
async def test_the_shipped_codec_hears_a_voice_as_it_would_hear_the_whole_recording(run_server):
    """In pieces of 20 ms, while the engine speaks; then the next reply is conditioned on it."""
    server = run_server(None)
    pcm16 = _recording()
    async with raw_client(server.ws_url, "moss.v1.msgpack") as client:
        await client.start(generation={"temperature": 0})
        await client.say("r0", "One moment, please. I am listening to every word you say.")
        for seq, start in enumerate(range(0, len(pcm16), 480)):
            part = pcm16[start : start + 480]
            await send_frame(client, "pcm_s16le", seq, part.tobytes(), len(part))
        await client.send("input_audio.commit", text="Hello?")
        await client.say("r1", "Hello.")
        got = await client.until("response.done")
        while got[-1]["response_id"] != "r1":
            got += await client.until("response.done")
        await client.send("history.get", audio=True)
        [user] = [i for i in (await client.until("history"))[-1]["items"] if i["role"] == "user"]
    assert got[-1]["status"] == "completed"
    codes = np.frombuffer(user["audio"]["codes"], "<u2").reshape(-1, server.services.prompt.n_vq)
    expected = _codes_of_the_whole(pcm16, codes.shape[1])
    # Floating-point ties may fall either way: 6 frames and a clip are products of other shapes.
    assert codes.shape == expected.shape
    assert (codes == expected).mean() > 0.99


def _recording() -> np.ndarray:
    pcm, rate_hz = soundfile.read(DEFAULT_VOICES_DIR / "alto.wav", dtype="int16")
    assert rate_hz == MODEL_HZ
    return pcm[: 25 * FRAME].astype("<i2")


def _codes_of_the_whole(pcm16: np.ndarray, n_vq: int) -> np.ndarray:
    wav = torch.from_numpy(pcm16.astype(np.float32) / 32768)[None, None]
    codes, _ = load_codec(DEFAULT_CODEC_DIR).encode(wav, n_codebooks=n_vq)
    return codes[:, 0].T.numpy()
