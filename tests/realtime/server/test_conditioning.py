"""The dialogue conditions the reply: golden turns, code by code, through a real socket.

The tiny golden model runs in the server's own engine process, with a codec of random weights.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
from safetensors.numpy import load_file, save_file

from tests.engine.harness import write_random_codec
from tests.realtime.server.raw_client import raw_client

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

REALTIME = Path(__file__).parents[2] / "vectors" / "realtime"
GOLDEN = load_file(REALTIME / "multiturn.safetensors")
TURNS = json.loads((REALTIME / "multiturn.json").read_text())["multiturn"]["turns"]
GREEDY = {"temperature": 0, "repetition_penalty": 1.1, "repetition_window": 50}


@pytest.fixture
def server(run_server, tmp_path):
    voices = tmp_path / "voices"
    voices.mkdir()
    soundfile.write(voices / "golden.wav", np.full(48_000, 0.1, np.float32), 24_000)
    codes = np.ascontiguousarray(GOLDEN["clone_codes"].astype(np.int64))
    save_file({"golden": codes}, voices / "references.safetensors")
    return run_server(
        None,
        model=str(REALTIME / "tiny"),
        codec=write_random_codec(tmp_path / "codec"),
        voices=str(voices),
        warm_up=False,
    )


async def converse(url: str, user_codes: list[np.ndarray]) -> list[np.ndarray]:
    """The codes of the three replies, as the session's history holds them."""
    async with raw_client(url, "moss.v1.msgpack") as client:
        await client.start(voice="golden", generation=GREEDY, layout="upstream_streaming")
        for number, (turn, codes) in enumerate(zip(TURNS, user_codes, strict=True)):
            audio = {"codes": codes.astype("<u2").tobytes()}
            item = {"role": "user", "text": turn["user"], "audio": audio}
            await client.send("item.create", item=item)
            await client.say(f"r{number}", turn["assistant"])
            await client.until("response.done")
        await client.send("history.get", audio=True)
        [*_, history] = await client.until("history")
    replies = [item for item in history["items"] if item["role"] == "assistant"]
    return [np.frombuffer(reply["audio"]["codes"], "<u2").reshape(-1, 16) for reply in replies]


async def test_three_turns_equal_upstreams(server):
    user_codes = [GOLDEN[f"turn{number}_user_codes"] for number in range(3)]
    spoken = await converse(server.ws_url, user_codes)
    for number, codes in enumerate(spoken):
        np.testing.assert_array_equal(codes, GOLDEN[f"turn{number}_frames"][:-1])


async def test_one_code_of_the_first_turn_changes_the_last_reply(server):
    user_codes = [GOLDEN[f"turn{number}_user_codes"].copy() for number in range(3)]
    user_codes[0][0, 0] = (user_codes[0][0, 0] + 1) % 1024
    spoken = await converse(server.ws_url, user_codes)
    assert not np.array_equal(spoken[2], GOLDEN["turn2_frames"][:-1])
