"""Five hundred sessions later there is nothing left of them."""

from __future__ import annotations

import pytest

from engine.fake import FakeScript
from tests.realtime.server.cycles import NOTHING, open_and_end, what_is_left
from tests.realtime.server.raw_client import raw_client

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


async def test_500_cycles_leave_nothing(run_server, eventually):
    server = run_server(FakeScript(step_s=0.0005), resume_ttl_s=1)
    await open_and_end(server.ws_url, 500)
    await eventually(lambda: what_is_left(server) == NOTHING)


async def test_what_is_there_is_counted(run_server, eventually):
    """The count can tell: an open session that speaks is seen in it."""
    server = run_server(
        FakeScript(block_after_frames=1), resume_ttl_s=0, api_keys=("a:secret-key-for-tests",)
    )
    headers = {"Authorization": "Bearer secret-key-for-tests"}
    async with raw_client(server.ws_url, headers=headers) as client:
        await client.start(input_audio={"codec": "pcm_s16le", "sample_rate": 24_000})
        await client.say("r", "Hello.")
        await eventually(lambda: what_is_left(server).slots == 1)
        left = what_is_left(server)
        assert (left.sessions, left.places, left.listeners, left.rows) == (1, 1, 1, 1)
        assert (left.connections, len(left.tasks)) == (1, 3)
    await eventually(lambda: what_is_left(server) == NOTHING)
