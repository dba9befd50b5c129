"""Every format and rate over a real socket: the engine's index sound, as the client hears it."""

import numpy as np
import pytest

from engine.fake import FakeScript
from engine.index_sound import chirp, read_ramp
from realtime.protocol.frames import FRAME_TYPES
from tests.realtime.server.decoding import check_numbering, heard
from tests.realtime.server.raw_client import frames_of, raw_client

pytestmark = pytest.mark.anyio

TEXT = ("It is ten past nine. ", "The train leaves at noon.")
CHUNKS = (1, 4, 15)


async def speak(client) -> list:
    """Two segments, so that the stream has a join that is not the codec's."""
    await client.send("response.start", response_id="r1", text=TEXT[0])
    await client.send("response.flush", response_id="r1")
    await client.send("response.text", response_id="r1", delta=TEXT[1])
    await client.send("response.end", response_id="r1")
    return await client.until("response.done")


@pytest.mark.parametrize("rate_hz", [8000, 16000, 24000, 48000])
@pytest.mark.parametrize("codec", ["pcm_s16le", "pcm_f32le", "mulaw", "alaw", "opus"])
async def test_every_sample_is_heard_once_and_in_its_place(run_server, codec, rate_hz):
    server = run_server(FakeScript(chunk_ramp_frames=CHUNKS))
    async with raw_client(server.ws_url, "moss.v1.msgpack") as client:
        started = await client.start(codec, audio={"sample_rate": rate_hz, "frame_ms": 40})
        assert started["audio"]["sample_rate"] == rate_hz
        got = await speak(client)
    frames = frames_of(got)
    check_numbering(frames)
    assert {frame.type for frame in frames} == {FRAME_TYPES[codec]}
    clock_hz = 48000 if codec == "opus" else rate_hz
    pcm = heard(codec, frames, started["audio"]["pre_skip"])
    assert len(pcm) * 1000 == got[-1]["audio_ms"] * clock_hz > 0
    expected = chirp(0, len(pcm), clock_hz)
    if codec == "opus":
        assert np.corrcoef(pcm, expected)[0, 1] > 0.95
        assert np.corrcoef(pcm[-960:], expected[-960:])[0, 1] > 0.9
    else:
        assert np.abs(pcm - expected)[200:-200].max() < 0.03


@pytest.mark.parametrize("codec", ["pcm_s16le", "pcm_f32le"])
async def test_linear_sound_at_the_models_rate_is_exact(run_server, codec):
    server = run_server(FakeScript(sound="ramp", chunk_ramp_frames=CHUNKS))
    async with raw_client(server.ws_url) as client:
        await client.start(codec)
        frames = frames_of(await speak(client))
    check_numbering(frames)
    pcm = np.rint(heard(codec, frames) * 32767).astype(np.int16)
    np.testing.assert_array_equal(read_ramp(pcm), np.arange(len(pcm)) % 65535)
