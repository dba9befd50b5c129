"""`GET /v1/models`, in OpenAI's list shape."""

from __future__ import annotations

import time
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute

from engine.api import ModelInfo
from realtime.server.aliases import model_not_found
from realtime.server.audio import available_formats
from realtime.server.resource import resource
from realtime.server.services import Services
from realtime.server.speech_request import MAX_INPUT_CHARS


def routes(services: Services) -> list[BaseRoute]:
    """The routes of models."""
    started_at = int(time.time())

    async def listing(request: Request) -> Response:
        data = [_describe(model, started_at) for model in services.bridge.models]
        return JSONResponse({"object": "list", "data": data})

    async def one(request: Request) -> Response:
        name = request.path_params["model"]
        for model in services.bridge.models:
            if model.name == name:
                return JSONResponse(_describe(model, started_at))
        raise model_not_found(name, services.bridge.models)

    return [resource("/v1/models", GET=listing), resource("/v1/models/{model}", GET=one)]


def _describe(model: ModelInfo, created: int) -> dict[str, Any]:
    return {
        "id": model.name,
        "object": "model",
        "created": created,
        "owned_by": "moss-realtime",
        "capabilities": {
            "sample_rate": model.rate_hz,
            "channels": model.channels,
            "frame_ms": model.frame_ms,
            "streaming": True,
            "needs_ref_audio": False,
            "max_input_chars": MAX_INPUT_CHARS,
            "response_formats": list(available_formats()),
        },
    }
