"""`GET /v1/engine`: what the engine does now, and the trace of one of its responses."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute

from realtime.server.errors import ApiError
from realtime.server.resource import resource
from realtime.server.row_log import RowRecord
from realtime.server.row_trace import trace
from realtime.server.services import Services


def routes(services: Services) -> list[BaseRoute]:
    """The routes of the engine."""
    rows = services.bridge.rows

    async def snapshot(request: Request) -> Response:
        return JSONResponse(describe(services, time.monotonic_ns()))

    async def one_trace(request: Request) -> Response:
        number = request.path_params["row"]
        record = rows.find(int(number)) if number.isdecimal() else None
        if record is None:
            message = f"there is no row {number!r}; GET /v1/engine lists those that can be traced"
            raise ApiError(404, "not_found", message, param="row")
        file = f'attachment; filename="row-{record.row}.json"'
        traced = trace(record, time.monotonic_ns())
        return JSONResponse(traced, headers={"Content-Disposition": file})

    return [
        resource("/v1/engine", GET=snapshot),
        resource("/v1/engine/rows/{row}/trace", GET=one_trace),
    ]


def describe(services: Services, now_ns: int) -> dict[str, Any]:
    """The snapshot: the last heartbeat, the rows that run, and the last ones that are over."""
    bridge = services.bridge
    stats = dataclasses.asdict(bridge.stats) if bridge.stats else None
    return {
        "status": services.why_not_ready() or "ready",
        "models": [model.name for model in bridge.models],
        "stats": stats,
        "running": [_running(record, now_ns) for record in bridge.rows.running.values()],
        "over": [_over(record) for record in reversed(bridge.rows.over.values())],
    }


def _running(record: RowRecord, now_ns: int) -> dict[str, Any]:
    state = "speaking" if record.first_sound_ns is not None else "queued or in prefill"
    lead_s = record.lead_s(now_ns)
    return _who(record) | {
        "state": f"waits for {record.parked}" if record.parked else state,
        "age_ms": (now_ns - record.opened_ns) // 1_000_000,
        "audio_ms": round(1000 * record.audio_s),
        "lead_ms": None if lead_s is None else round(1000 * lead_s),
    }


def _over(record: RowRecord) -> dict[str, Any]:
    return _who(record) | {
        "reason": record.reason,
        "audio_ms": round(1000 * record.audio_s),
        "cancel_ms": record.cancel_ms,
        "trace": f"/v1/engine/rows/{record.row}/trace",
    }


def _who(record: RowRecord) -> dict[str, Any]:
    return {
        "row": record.row,
        "name": record.name,
        "model": record.model,
        "lane": record.lane,
        "context_rows": record.context_rows,
    }
