"""The page on monitoring names every metric there is, and none that is not."""

from __future__ import annotations

import base64
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.realtime.server.recordings import packed, tone

if TYPE_CHECKING:
    from tests.running_server import RunningServer

PAGE = (Path(__file__).parents[2] / "deploy" / "MONITORING.md").read_text(encoding="utf-8")


@pytest.mark.anyio
async def test_every_metric_is_described(
    running_server: RunningServer, eventually: Callable[[Callable[[], Any]], Awaitable[None]]
) -> None:
    await eventually(lambda: running_server.services.bridge.stats)
    text = running_server.services.metrics.render().decode()
    found = re.findall(r"^# TYPE (moss_\w+) \w+$", text, re.MULTILINE)
    exported = {name for name in found if not name.endswith("_created")}
    described = set(re.findall(r"`(moss_[a-z_]+)`", PAGE))
    engine = {name for name in exported if name.startswith("moss_engine_")} - {"moss_engine_up"}
    assert engine
    assert exported - engine == described


def test_reference_audio_that_comes_again_is_a_hit(running_server: RunningServer) -> None:
    url = "data:audio/wav;base64," + base64.b64encode(packed(tone(2))).decode()
    with httpx.Client(base_url=running_server.base_url) as client:
        for _ in range(3):
            body = {"input": "Hi.", "ref_audio": url}
            assert client.post("/v1/audio/speech", json=body).status_code == 200
        text = client.get("/metrics").text
    counts = re.findall(r'moss_reference_cache_total\{answer="(\w+)",cache="(\w+)"\} (\S+)', text)
    assert {(cache, answer): float(count) for answer, cache, count in counts} == {
        ("sounds", "made"): 1,
        ("sounds", "hit"): 2,
        ("codes", "made"): 1,
        ("codes", "hit"): 2,
    }


def test_the_log_line_shown_has_the_fields_there_are() -> None:
    from realtime.server.row_log import RowRecord

    shown = re.findall(r"\b(\w+)=", PAGE[PAGE.index("    sess=") : PAGE.index("`least_lead_ms`")])
    record = RowRecord(7, 0)
    record.name = "sess=s resp=r1"
    assert shown == re.findall(r"\b(\w+)=", record.line())
