"""`POST /v1/audio/speech`: OpenAI's endpoint, with a few more fields."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from engine.api import ModelInfo
from engine.models.utterances import SpeechRequest
from realtime.server.aliases import Aliases
from realtime.server.errors import parse_json_object, read_body, request_id
from realtime.server.off_loop import off_loop
from realtime.server.readiness import check_ready
from realtime.server.ref_audio import MAX_REF_BYTES, References
from realtime.server.resource import resource
from realtime.server.served_models import ServedModel
from realtime.server.services import Services
from realtime.server.speech_batch import BatchEndpoint
from realtime.server.speech_check import check_for_info, check_for_model
from realtime.server.speech_material import (
    Speaker,
    check_history,
    encode_history,
    encode_speakers,
    find_speakers,
)
from realtime.server.speech_request import SpeechBody, parse_speech_body, refuse
from realtime.server.speech_response import Speech, SpeechResponse
from realtime.server.speech_rows import SpeechRows

MAX_BODY_BYTES = MAX_REF_BYTES * 4 // 3 + (256 << 10)


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
        body = await off_loop(self._services, parse_speech_body, fields)
        model = self._aliases.model(body.model, self._services.models)
        check_for_model(body, model.speech.capabilities)
        check_history(body.history or ())
        check_ready(self._services)
        info = model.ready_info
        check_for_info(body, info)
        speakers = await find_speakers(body, model, self._aliases)

        async def open_row() -> SpeechRows:
            return await self._rows(body, model, info, speakers, name=f"req={request_id}")

        speech = Speech(
            received_at=received_at,
            request_id=request_id,
            model=info,
            audio_format=body.audio_format,
            file_hz=body.sample_rate,
            sse=body.stream_format == "sse",
            voice_name=",".join(quote(speaker.name, " ") for speaker in speakers),
            open_row=open_row,
        )
        return SpeechResponse(self._services, speech)

    async def _rows(
        self,
        body: SpeechBody,
        model: ServedModel,
        info: ModelInfo,
        speakers: Sequence[Speaker],
        *,
        name: str,
    ) -> SpeechRows:
        capabilities = model.speech.capabilities
        request = SpeechRequest(
            text=body.spoken_text,
            frame_ms=info.frame_ms,
            references=await encode_speakers(speakers, model, self._references),
            instructions=(body.instructions or "").strip() or None,
            language=body.language and capabilities.language(body.language),
            sound_event=body.sound_event,
            quality=body.quality,
            duration_s=body.duration_seconds,
            history=await encode_history(body, model, self._references),
            n_vq=body.n_vq,
            normalizer=body.text_normalizer,
        )
        try:
            utterances = await off_loop(self._services, model.speech.utterances, request)
        except ValueError as error:
            param = "history" if body.history else "input"
            raise refuse(param, "invalid_field", f"`{param}`: {error}") from error
        return SpeechRows(
            self._services.bridge,
            info,
            utterances,
            reference_frames=_frames(request),
            seed=secrets.randbits(63) if body.seed is None else body.seed,
            sampling=body.sampling(info.sampling_defaults),
            text_sampling=body.text_sampling(info.text_sampling_defaults),
            max_frames=body.max_frames(info, capabilities.max_audio_s),
            name=name,
        )


def _frames(request: SpeechRequest) -> int:
    """Frames of sound that the model is given."""
    sounds = [reference.codes for reference in request.references.values()]
    sounds += [turn.codes for turn in request.history if turn.codes is not None]
    return sum(map(len, sounds))
