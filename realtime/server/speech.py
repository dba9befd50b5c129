"""`POST /v1/audio/speech`: OpenAI's endpoint, with a few more fields."""

from __future__ import annotations

import secrets
import time
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from engine.api import ModelInfo, U16Codes
from realtime.server.aliases import Aliases
from realtime.server.errors import parse_json_object, read_body, request_id
from realtime.server.off_loop import off_loop
from realtime.server.readiness import check_ready
from realtime.server.ref_audio import MAX_REF_BYTES, References
from realtime.server.resource import resource
from realtime.server.services import Services
from realtime.server.speech_batch import BatchEndpoint
from realtime.server.speech_request import SpeechBody, parse_speech_body
from realtime.server.speech_response import Speech, SpeechResponse
from realtime.server.speech_row import SpeechRow

MAX_BODY_BYTES = MAX_REF_BYTES * 4 // 3 + (256 << 10)
INLINE_VOICE = "ref_audio"


def routes(services: Services) -> list[BaseRoute]:
    """The route of speech. Raises `ConfigError` for aliases that make no sense."""
    endpoint = SpeechEndpoint(services)
    batch = BatchEndpoint(services, endpoint.answer)
    return [
        resource("/v1/audio/speech", POST=endpoint.speak),
        resource("/v1/audio/speech/batch", POST=batch.speak),
    ]


class SpeechEndpoint:
    """Understands requests; the answers speak.

    Raises `ConfigError` for aliases that make no sense.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._aliases = Aliases(services.config)
        self._references = References(services)

    async def speak(self, request: Request) -> Response:
        """Read a request from its body."""
        received_at = time.monotonic()
        raw = await read_body(request, MAX_BODY_BYTES)
        fields = await off_loop(self._services, parse_json_object, raw)
        return await self.answer(fields, request_id(request), received_at)

    async def answer(
        self, fields: dict[str, Any], request_id: str, received_at: float
    ) -> SpeechResponse:
        """Validate all of a request; the response does the rest. Raises `ApiError`."""
        body, text_ids = await off_loop(self._services, self._parse, fields)
        check_ready(self._services)
        model = self._aliases.model(body.model, self._services.bridge.models)
        voice = None
        if body.ref_audio is None:
            voice = self._aliases.voice(body.voice_name, self._services.voices)

        async def open_row() -> tuple[SpeechRow, int]:
            codes = voice.codes if voice else None
            if body.ref_audio is not None:
                codes = await self._references.codes(body.ref_audio, model)
            return self._row(body, text_ids, model, codes), 0 if codes is None else len(codes)

        speech = Speech(
            received_at=received_at,
            request_id=request_id,
            model=model,
            audio_format=body.audio_format,
            sse=body.stream_format == "sse",
            voice_name=INLINE_VOICE if body.ref_audio else quote(voice.name if voice else "", " "),
            text_tokens=len(text_ids),
            open_row=open_row,
        )
        return SpeechResponse(self._services, speech)

    def _parse(self, fields: dict[str, Any]) -> tuple[SpeechBody, tuple[int, ...]]:
        body = parse_speech_body(fields)
        return body, tuple(self._services.prompt.tokenizer.encode(body.spoken_text))

    def _row(
        self,
        body: SpeechBody,
        text_ids: tuple[int, ...],
        model: ModelInfo,
        voice_codes: U16Codes | None,
    ) -> SpeechRow:
        return SpeechRow(
            self._services.bridge,
            model,
            grid=self._services.prompt.dialogue([], voice_codes),
            text_ids=text_ids,
            seed=secrets.randbits(63) if body.seed is None else body.seed,
            sampling=body.sampling(model.sampling_defaults),
            max_frames=body.max_frames(model),
        )
