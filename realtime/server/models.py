"""`GET /v1/models`, in OpenAI's list shape, with what each model can do."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute

from engine.api import ModelInfo
from engine.models.capabilities import Capabilities
from realtime.server.audio import available_formats
from realtime.server.audio.reference import MAX_S, MIN_S
from realtime.server.readiness import check_ready
from realtime.server.resource import resource
from realtime.server.services import Services
from realtime.server.speech_request import SAMPLE_RATES_HZ


def routes(services: Services) -> list[BaseRoute]:
    """The routes of models."""
    started_at = int(time.time())

    async def listing(request: Request) -> Response:
        data = [
            _describe(model.info, model.speech.capabilities, started_at)
            for model in services.models
            if model.info is not None
        ]
        return JSONResponse({"object": "list", "data": data})

    async def one(request: Request) -> Response:
        model = services.models.find(request.path_params["model"])
        if model.info is None:
            check_ready(services)
        return JSONResponse(_describe(model.ready_info, model.speech.capabilities, started_at))

    return [resource("/v1/models", GET=listing), resource("/v1/models/{model}", GET=one)]


def _describe(info: ModelInfo, can: Capabilities, created: int) -> dict[str, Any]:
    """Fields up to `owned_by` are OpenAI's."""
    return {
        "id": info.name,
        "object": "model",
        "created": created,
        "owned_by": "moss-realtime",
        "capabilities": {
            "model": can.title,
            "input": "the description of a sound" if can.speaks == "ambient_sound" else "words",
            "fields": sorted(can.takes),
            "required_fields": ["input", *sorted(can.requires)],
            "sessions": can.holds_dialogues,
            "streaming": True,
            "needs_ref_audio": "ref_audio" in can.requires,
            "references": _references(can),
            "max_speakers": can.max_speakers if "ref_audio" in can.takes else 0,
            "languages": list(can.languages),
            "instructions": "instructions" in can.takes,
            "max_duration_s": can.max_audio_s if "duration_seconds" in can.takes else None,
            "history": "history" in can.takes,
            "text_normalizers": list(can.normalizers),
            "sample_rate": info.rate_hz,
            "sample_rates": sorted({*SAMPLE_RATES_HZ, info.rate_hz}),
            "channels": info.channels,
            "frame_ms": info.frame_ms,
            "response_formats": list(available_formats()),
            "max_input_chars": can.max_input_chars,
            "max_audio_s": can.max_audio_s,
            "max_context_rows": info.max_grid_rows,
            "max_concurrent": info.capacity_rows,
            "n_vq": info.n_vq,
            "sampling_defaults": dataclasses.asdict(info.sampling_defaults),
            "text_sampling_defaults": (
                info.text_sampling_defaults and dataclasses.asdict(info.text_sampling_defaults)
            ),
            "example": dict(can.example),
        },
    }


def _references(can: Capabilities) -> dict[str, Any] | None:
    """What a reference recording may be; None where the model takes none."""
    if "ref_audio" not in can.takes:
        return None
    return {"min_s": MIN_S, "max_s": MAX_S, "transcript": "ref_text" in can.takes}
