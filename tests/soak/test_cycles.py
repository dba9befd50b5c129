"""Ten thousand sessions later there is nothing left of them, and no more memory is in use."""

from __future__ import annotations

import gc
import os

import pytest

from engine.fake import FakeScript
from tests.realtime.server.cycles import NOTHING, open_and_end, what_is_left
from tests.server_process import resident_kib

pytestmark = pytest.mark.anyio

GROWTH_KIB = 32 * 1024


async def test_10000_cycles_leave_nothing(run_server, eventually):
    server = run_server(FakeScript(step_s=0.0005), resume_ttl_s=1)
    resident = []
    for _ in range(10):
        await open_and_end(server.ws_url, 1000)
        await eventually(lambda: what_is_left(server) == NOTHING)
        server.engine.log.clear()
        gc.collect()
        resident.append(resident_kib(os.getpid()))
    assert resident[-1] - resident[0] < GROWTH_KIB, resident
