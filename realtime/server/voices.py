"""`/v1/voices` and its alias `/v1/audio/voices`, the path of OpenAI's SDK."""

from __future__ import annotations

import dataclasses
from typing import Any

from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute

from realtime.server.audio import ReferenceError, decode_reference
from realtime.server.bridge import EngineError
from realtime.server.errors import ApiError, limited, parse_json_object, read_body, too_large
from realtime.server.off_loop import off_loop
from realtime.server.readiness import check_ready
from realtime.server.resource import resource
from realtime.server.services import Services
from realtime.server.voice import Voice
from realtime.server.voice_store import voice_not_found

MAX_UPLOAD_BYTES = 10 << 20
MAX_TEXT_CHARS = 4_000
_FORM_BYTES = 64 << 10  # for the text fields and the boundaries
_FIELDS = ("name", "audio", "audio_sample", "ref_text", "consent", "type")


def routes(services: Services) -> list[BaseRoute]:
    """The routes of both paths."""
    api = _Voices(services)
    return [
        route
        for path in ("/v1/voices", "/v1/audio/voices")
        for route in (
            resource(path, GET=api.listing, POST=api.add),
            resource(f"{path}/{{voice}}", GET=api.one, PATCH=api.update, DELETE=api.delete),
        )
    ]


class _Voices:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def listing(self, request: Request) -> Response:
        """All voices."""
        voices = [_summary(voice) for voice in self._services.voices.all()]
        return JSONResponse({"object": "list", "data": voices})

    async def one(self, request: Request) -> Response:
        """One voice by name or id, with its transcript."""
        name, voices = request.path_params["voice"], self._services.voices
        if found := voices.get(name):
            return JSONResponse(_summary(found) | {"ref_text": found.ref_text})
        raise voice_not_found(name, voices.names(), 404)

    async def update(self, request: Request) -> Response:
        """Give an uploaded voice another name or transcript."""
        fields = parse_json_object(await read_body(request, _FORM_BYTES))
        for field, value in fields.items():
            if field not in ("name", "ref_text"):
                message = f"unknown field `{field}`; name and ref_text can be changed"
                raise ApiError(400, "unknown_field", message, param=field)
            _check_text(field, value)
        changed = await self._services.voices.update(request.path_params["voice"], **fields)
        return JSONResponse(_summary(changed) | {"ref_text": changed.ref_text})

    async def delete(self, request: Request) -> Response:
        """Delete an uploaded voice."""
        voice = await self._services.voices.remove(request.path_params["voice"])
        return JSONResponse({"id": voice.id, "object": "audio.voice.deleted", "deleted": True})

    async def add(self, request: Request) -> Response:
        """Decode, encode and store an upload, all before it is answered."""
        form = await _read_form(request)
        check_ready(self._services)
        model = self._services.models.talker or self._services.models.first
        try:
            rate_hz = model.ready_info.rate_hz
            pcm = await off_loop(self._services, decode_reference, form.audio, rate_hz)
            voice = await self._services.voices.add(
                name=form.name,
                audio=form.audio,
                pcm=pcm,
                rate_hz=rate_hz,
                encode=model.encode,
                ref_text=form.ref_text,
                consent=form.consent,
            )
        except ReferenceError as error:
            raise ApiError(400, "bad_audio", str(error), param="audio") from error
        except EngineError as error:
            raise ApiError(503, "engine_failed", str(error), param="audio") from error
        return JSONResponse(_summary(voice))


@dataclasses.dataclass(frozen=True, slots=True)
class _Form:
    name: str
    audio: bytes
    ref_text: str
    consent: str


async def _read_form(request: Request) -> _Form:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "multipart/form-data":
        message = f"send multipart/form-data with `name` and `audio`, not {kind or 'no type'}"
        raise ApiError(400, "invalid_content_type", message)
    bounded = limited(request, MAX_UPLOAD_BYTES + _FORM_BYTES)
    async with bounded.form(
        max_files=1, max_fields=len(_FIELDS), max_part_size=_FORM_BYTES
    ) as form:
        for field in form:
            if field not in _FIELDS:
                message = f"unknown field `{field}`; known are {', '.join(_FIELDS)}"
                raise ApiError(400, "unknown_field", message, param=field)
        file = form.get("audio") or form.get("audio_sample")
        if not isinstance(file, UploadFile):
            message = "`audio` is required: a WAV, FLAC, MP3 or Ogg file of 1 to 30 s"
            raise ApiError(400, "missing_field", message, param="audio")
        audio = await file.read()
        if len(audio) > MAX_UPLOAD_BYTES:
            raise too_large(MAX_UPLOAD_BYTES)
        return _Form(
            name=_text(form, "name"),
            audio=audio,
            ref_text=_text(form, "ref_text"),
            consent=_text(form, "consent"),
        )


def _text(form: FormData, field: str) -> str:
    return _check_text(field, form.get(field, ""))


def _check_text(field: str, value: object) -> str:
    if not isinstance(value, str):
        message = f"`{field}` must be text, not {type(value).__name__}"
        raise ApiError(400, "invalid_field", message, param=field)
    if len(value) > MAX_TEXT_CHARS:
        message = f"`{field}` has {len(value)} characters; at most {MAX_TEXT_CHARS} are kept"
        raise ApiError(400, "invalid_field", message, param=field)
    return value


def _summary(voice: Voice) -> dict[str, Any]:
    """What everybody may see; fields up to `type` are OpenAI's."""
    return {
        "id": voice.id,
        "object": "audio.voice",
        "name": voice.name,
        "created_at": voice.created_at,
        "type": "audio_sample",
        "builtin": voice.builtin,
        "duration_s": voice.duration_s,
        "status": "ready",
    }
