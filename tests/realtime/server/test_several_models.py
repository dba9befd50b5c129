"""One server, three models in one engine: requests choose, sessions go where they can."""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pytest

from tests.deploy.checkpoints import MODEL_DIRS, write_codecs
from tests.realtime.server.raw_client import raw_client
from tests.realtime.server.recordings import packed, tone

if TYPE_CHECKING:
    from tests.running_server import RunningServer

pytestmark = pytest.mark.slow

NAMES = ("moss-tts", "moss-tts-local", "moss-tts-realtime")
SEED = 3  # an answer of the tiny MOSS-TTS that has sound
SHAPES = {"moss-tts": (24_000, 1), "moss-tts-local": (48_000, 2), "moss-tts-realtime": (24_000, 1)}


@pytest.fixture
def server(run_server, tmp_path) -> RunningServer:
    codecs = write_codecs(tmp_path / "codecs")
    return run_server(
        None,
        model=",".join(str(MODEL_DIRS[name]) for name in NAMES),
        codec=",".join(codecs[name] for name in NAMES),
        variant="tts,auto,auto",
        voices="",
        max_rows=4,
        max_grid_rows=512,
        device="cpu",
        threads=1,
        warm_up=False,
    )


def speak(server: RunningServer, **body: Any) -> httpx.Response:
    fields = {"input": "Here we are.", "seed": SEED, "response_format": "wav"}
    url = f"{server.base_url}/v1/audio/speech"
    return httpx.post(url, json=fields | body, timeout=60)


def test_several_models_on_one_server(server, decode) -> None:
    listed = httpx.get(f"{server.base_url}/v1/models").json()["data"]
    assert [model["id"] for model in listed] == list(NAMES)
    unknown = speak(server, model="tts-9")
    assert (unknown.status_code, unknown.json()["error"]["param"]) == (404, "model")
    assert all(name in unknown.json()["error"]["message"] for name in NAMES)
    assert httpx.get(f"{server.base_url}/v1/models/tts-9").status_code == 404

    with concurrent.futures.ThreadPoolExecutor() as pool:
        answers = dict(
            zip(NAMES, pool.map(lambda name: speak(server, model=name), NAMES), strict=True)
        )
    for name, answer in answers.items():
        assert answer.status_code == 200, answer.text
        assert answer.headers["x-model"] == name
        heard, rate_hz = decode("wav", answer.content)
        assert (rate_hz, heard.shape[1]) == SHAPES[name]
    for said in ({}, {"model": "tts-1"}, {"model": "gpt-4o-mini-tts"}):
        assert speak(server, **said).headers["x-model"] == "moss-tts"

    form, files = {"name": "anna"}, {"audio": ("a.wav", packed(tone(1.2)))}
    stored = httpx.post(f"{server.base_url}/v1/voices", data=form, files=files)
    assert stored.status_code == 200, stored.text
    for name, n_vq in zip(NAMES, (8, 12, 16), strict=True):
        answer = speak(server, model=name, voice="anna")
        assert (answer.status_code, answer.headers["x-voice"]) == (200, "anna"), answer.text
        assert server.services.models.find(name).voices.get("anna").codes.shape[1] == n_vq
    wrong = speak(server, model="moss-tts-local", speakers=[{"id": "S1", "voice": "anna"}])
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "speakers")

    asyncio.run(converse(server.ws_url))


async def converse(url: str) -> None:
    """A session speaks with the model that holds dialogues, though it is not the first."""
    async with raw_client(url, "moss.v1.msgpack") as client:
        await client.start(voice="anna")
        await client.say("r1", "Good evening.")
        await client.until("response.done")


def test_what_a_model_says_does_not_depend_on_those_beside_it(
    server, run_server, tmp_path, decode
) -> None:
    settings = {
        **{"codec": str(tmp_path / "codecs" / "moss-tts-local"), "voices": "", "device": "cpu"},
        **{"model": str(MODEL_DIRS["moss-tts-local"]), "threads": 1, "warm_up": False},
    }
    alone = run_server(None, **settings)
    sounds = [
        decode("wav", speak(one, model="moss-tts-local").content)[0] for one in (server, alone)
    ]
    np.testing.assert_allclose(sounds[0], sounds[1], atol=1e-3)
    done = speak(alone, stream_format="sse").text.strip().split("\n\n")[-1]
    outcome = json.loads(done.split("data: ")[1])
    assert outcome["finish_reason"] == "stop"
    assert outcome["audio_duration_ms"] == len(sounds[1]) // 48
