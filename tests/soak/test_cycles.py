"""Ten thousand sessions later there is nothing left of them, and no more memory is in use."""

from __future__ import annotations

import gc
import os

import pytest

from engine.fake import FakeScript
from tests.realtime.server.cycles import NOTHING, open_and_end, what_is_left
from tests.server_process import resident_kib

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.soak]

GROWTH_KIB = 32 * 1024


async def test_10000_cycles_leave_nothing(run_server, eventually):
    server = run_server(FakeScript(step_s=0.0005))
    await open_and_end(server.ws_url, 1000)
    gc.collect()
    before_kib = resident_kib(os.getpid())
    await open_and_end(server.ws_url, 9000)
    await eventually(lambda: what_is_left(server) == NOTHING)
    server.engine.log.clear()
    gc.collect()
    assert resident_kib(os.getpid()) - before_kib < GROWTH_KIB
