"""`POST /v1/audio/speech`, called as its users do: OpenAI's package, and plain HTTP."""

from __future__ import annotations

import base64
import contextlib
import json
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import openai
import pytest
import soundfile
from numpy.typing import NDArray

from engine.api import Cancel, End, Feed, Open, Played, Sampling
from engine.fake import FakeScript
from engine.index_sound import chirp, locate_chirp
from realtime.server.audio import FORMATS

if TYPE_CHECKING:
    from tests.running_server import RunningServer

F32 = NDArray[np.float32]
RunServer = Callable[..., "RunningServer"]
Decode = Callable[[str, bytes], tuple[F32, int]]

SPEECH = "/v1/audio/speech"
TEXT = "The capital city is Dublin, and it is quite late."
MP3_LEAD_SAMPLES = 1681  # see test_writers.py
CONTENT_TYPES = {
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
    "flac": "audio/flac",
    "wav": "audio/wav",
    "pcm": "audio/pcm;rate=24000;channels=1",
}


def expected_samples(server: RunningServer, text: str = TEXT) -> int:
    script = server.engine.script
    ids = len(server.services.prompt.tokenizer.encode(text))
    return (ids * script.frames_per_id + script.tail_frames) * 1920


def assert_is_chirp(audio_format: str, heard: F32, samples: int) -> None:
    """The sound is the fake engine's, from its first sample to its last."""
    mono = heard[:, 0]
    if audio_format == "mp3":
        mono = mono[MP3_LEAD_SAMPLES:][:samples]
    assert len(mono) == samples
    tolerance = {"mp3": 4, "opus": 4}.get(audio_format, 0)
    assert abs(locate_chirp(mono[:24_000], 24_000)) <= tolerance
    start = (samples - 24_000) % 240_000
    assert abs(locate_chirp(mono[-24_000:], 24_000) - start) <= tolerance
    if not tolerance:
        np.testing.assert_allclose(mono, chirp(0, samples, 24_000), atol=1.01 / 32767)


def commands(server: RunningServer, kind: type) -> list[Any]:
    return [command for _, command in server.engine.log if isinstance(command, kind)]


def events(body: str) -> list[dict[str, Any]]:
    found = []
    for block in body.strip().split("\n\n"):
        name, data = block.split("\n")
        fields = json.loads(data.removeprefix("data: "))
        assert name == f"event: {fields['type']}"
        found.append(fields)
    return found


@pytest.fixture
def client(running_server: RunningServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=f"{running_server.base_url}/v1", api_key="none", max_retries=0
    ) as client:
        yield client


def test_openai_package_in_every_format(
    running_server: RunningServer, client: openai.OpenAI, decode: Decode
) -> None:
    samples = expected_samples(running_server)
    for audio_format in FORMATS:
        answer = client.audio.speech.create(
            model="tts-1", voice="alloy", input=TEXT, response_format=audio_format
        )
        assert answer.response.headers["content-type"] == CONTENT_TYPES[audio_format]
        heard, rate_hz = decode(audio_format, answer.content)
        assert rate_hz == 24_000
        assert_is_chirp(audio_format, heard, samples)


def test_openai_package_default_format_is_mp3(
    running_server: RunningServer, client: openai.OpenAI, decode: Decode
) -> None:
    answer = client.audio.speech.create(model="gpt-4o-mini-tts", voice="nova", input=TEXT)
    assert_is_chirp("mp3", decode("mp3", answer.content)[0], expected_samples(running_server))


@pytest.mark.anyio
async def test_openai_package_async_streaming(
    running_server: RunningServer, decode: Decode
) -> None:
    async with openai.AsyncOpenAI(
        base_url=f"{running_server.base_url}/v1", api_key="none", max_retries=0
    ) as client:
        for audio_format in FORMATS:
            async with client.audio.speech.with_streaming_response.create(
                model="tts-1", voice={"id": "heart"}, input=TEXT, response_format=audio_format
            ) as answer:
                data = b"".join([part async for part in answer.iter_bytes(500)])
            heard, _ = decode(audio_format, data)
            assert_is_chirp(audio_format, heard, expected_samples(running_server))


def test_openai_package_raises_its_own_errors(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as bad:
        client.audio.speech.create(model="tts-1", voice="alloy", input=" ")
    assert (bad.value.code, bad.value.param) == ("input_blank", "input")
    with pytest.raises(openai.NotFoundError, match="moss-tts-realtime"):
        client.audio.speech.create(model="tts-9", voice="alloy", input="Hi")
    assert [model.id for model in client.models.list()] == ["moss-tts-realtime"]
    assert client.models.retrieve("moss-tts-realtime").object == "model"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("tts-9")


@pytest.mark.parametrize(
    ("audio_format", "frames", "sse"),
    [
        *(("pcm", 1, False), ("wav", 1, False), ("opus", 1, False)),
        *(("mp3", 3, False), ("flac", 4, False), ("pcm", 1, True), ("opus", 1, True)),
    ],
)
def test_sound_can_be_heard_while_the_engine_has_made_only_the_first_frames(
    run_server: RunServer, decode: Decode, audio_format: str, frames: int, sse: bool
) -> None:
    server = run_server(FakeScript(block_after_frames=frames))
    body = {"input": TEXT, "response_format": audio_format}
    body |= {"stream_format": "sse"} if sse else {}
    with httpx.stream("POST", server.base_url + SPEECH, json=body) as answer:
        assert answer.status_code == 200
        received, parts = b"", answer.iter_raw()
        for part in parts:
            received += part
            data = received
            if sse:
                whole = received.rpartition(b"\n\n")[0].decode()
                deltas = events(whole) if whole else []
                data = b"".join(base64.b64decode(delta["audio"]) for delta in deltas)
            with contextlib.suppress(soundfile.LibsndfileError):
                heard, _ = decode(audio_format, data)
                if np.abs(heard).max(initial=0) > 0.1:
                    break
        else:
            pytest.fail("the body ended")
        server.engine.release()
        assert sum(map(len, parts)) > 0


def test_headers(running_server: RunningServer) -> None:
    answer = httpx.post(
        running_server.base_url + SPEECH,
        json={"input": TEXT, "voice": "HEART", "response_format": "wav"},
        headers={"X-Request-Id": "call-17"},
    )
    shown = {
        name: value
        for name, value in answer.headers.items()
        if name.startswith("x-") or name in ("content-type", "transfer-encoding")
    }
    assert shown == {
        "content-type": "audio/wav",
        "transfer-encoding": "chunked",
        "x-accel-buffering": "no",
        "x-audio-sample-rate": "24000",
        "x-audio-channels": "1",
        "x-audio-format": "wav",
        "x-request-id": "call-17",
        "x-model": "moss-tts-realtime",
        "x-voice": "heart",
    }
    assert "content-length" not in answer.headers


def test_a_request_id_unfit_for_a_header_is_replaced(running_server: RunningServer) -> None:
    for given in ("", "a b", "x" * 129, "caf\u00e9"):
        answer = httpx.post(
            running_server.base_url + SPEECH,
            json={"input": " "},
            headers={"X-Request-Id": given.encode()},
        )
        assert re.fullmatch("[0-9a-f]{32}", answer.headers["x-request-id"])


def test_server_sent_events(running_server: RunningServer, decode: Decode) -> None:
    answer = httpx.post(
        running_server.base_url + SPEECH,
        json={"input": TEXT, "response_format": "wav", "stream_format": "sse"},
    )
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    *deltas, done = events(answer.text)
    assert {delta["type"] for delta in deltas} == {"speech.audio.delta"}
    assert [delta["index"] for delta in deltas] == list(range(len(deltas)))
    assert deltas[0].keys() == {
        *("type", "audio", "response_format", "sample_rate", "channels", "index")
    }
    heard, _ = decode("wav", b"".join(base64.b64decode(delta["audio"]) for delta in deltas))
    samples = expected_samples(running_server)
    assert_is_chirp("wav", heard, samples)
    ids = len(running_server.services.prompt.tokenizer.encode(TEXT))
    voice_frames = len(running_server.services.voices.default().codes)
    assert done.pop("ttfa_ms") >= 0
    assert done == {
        "type": "speech.audio.done",
        "usage": {
            "input_tokens": ids + voice_frames,
            "output_tokens": samples // 1920,
            "total_tokens": ids + voice_frames + samples // 1920,
            "input_token_details": {"text_tokens": ids, "audio_tokens": voice_frames},
        },
        "finish_reason": "stop",
        "audio_duration_ms": samples // 24,
    }


def test_the_cap_shows_as_length(running_server: RunningServer) -> None:
    answer = httpx.post(
        running_server.base_url + SPEECH,
        json={"input": TEXT, "stream_format": "sse", "max_new_tokens": 4},
    )
    done = events(answer.text)[-1]
    assert (done["finish_reason"], done["audio_duration_ms"]) == ("length", 320)


def test_what_the_engine_is_asked(running_server: RunningServer) -> None:
    body = {
        **{"input": TEXT, "voice": "male", "seed": 2**63 - 1, "temperature": 0, "top_p": 0.25},
        **{"top_k": 7, "repetition_penalty": 1.25, "max_new_tokens": 9, "speed": 1},
    }
    assert httpx.post(running_server.base_url + SPEECH, json=body).status_code == 200
    services = running_server.services
    [opened], [fed] = commands(running_server, Open), commands(running_server, Feed)
    assert fed.ids == tuple(services.prompt.tokenizer.encode(TEXT))
    assert len(commands(running_server, End)) == 1
    assert commands(running_server, Cancel) == []
    grid = services.prompt.dialogue([], services.voices.get("male").codes)
    np.testing.assert_array_equal(opened.grid, grid)
    assert (opened.lane, opened.seed, opened.max_frames) == ("throughput", 2**63 - 1, 9)
    assert opened.sampling == Sampling(0, 0.25, 7, 1.25, Sampling().repetition_window)
    assert commands(running_server, Played)[-1].samples == 9 * 1920


def test_normalize_speaks_words(running_server: RunningServer) -> None:
    url = running_server.base_url + SPEECH
    body = {"input": "It costs **$5**.", "normalize": True, "response_format": "pcm"}
    assert httpx.post(url, json=body).status_code == 200
    encode = running_server.services.prompt.tokenizer.encode
    assert commands(running_server, Feed)[0].ids == tuple(encode("It costs five dollars."))
    blank = httpx.post(url, json=body | {"input": "---"})
    assert (blank.status_code, blank.json()["error"]["code"]) == (400, "input_blank")


def test_texts_that_must_be_spoken(running_server: RunningServer) -> None:
    texts = ["a", "...", "\U0001f600", "\u4f60", "x" * 8000, "\x00", "<|im_end|>"]
    for text in texts:
        answer = httpx.post(
            running_server.base_url + SPEECH,
            json={"input": text, "response_format": "pcm", "max_new_tokens": 5},
        )
        assert (answer.status_code, len(answer.content)) == (200, 5 * 3840), text[:20]
    fed = [command.ids for command in commands(running_server, Feed)]
    tokenizer = running_server.services.prompt.tokenizer
    assert fed == [tuple(tokenizer.encode(text)) for text in texts]


def test_surrogates_are_joined_and_lone_ones_replaced(running_server: RunningServer) -> None:
    for escaped in (rb"\ud83d\ude00", rb"a\ud83d b"):
        answer = httpx.post(running_server.base_url + SPEECH, content=b'{"input": "%s"}' % escaped)
        assert answer.status_code == 200
    tokenizer = running_server.services.prompt.tokenizer
    assert [command.ids for command in commands(running_server, Feed)] == [
        tuple(tokenizer.encode(text)) for text in ("\U0001f600", "a\ufffd b")
    ]


def test_openai_voice_names_and_configured_aliases(run_server: RunServer) -> None:
    server = run_server(voice_aliases=("alloy=male",), model_aliases=("speech-1",))

    def voice_of(**body: Any) -> str:
        answer = httpx.post(server.base_url + SPEECH, json={"input": "Hi."} | body)
        assert answer.status_code == 200, answer.text
        return answer.headers["x-voice"]

    builtin = server.services.voices.names()
    assert voice_of() == voice_of(voice="default") == voice_of(voice=None) == builtin[0]
    assert voice_of(voice="alloy", model="speech-1") == voice_of(speaker="Alloy") == "male"
    assert voice_of(voice={"id": server.services.voices.get("alto").id}) == "alto"
    assert {voice_of(voice=name) for name in ("ash", "coral", "onyx", "verse")} <= {*builtin}
