"""Audio that comes within a request: a data URL, or a link where that is allowed."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import hashlib
from typing import Literal

from engine.api import U16Codes
from realtime.server.audio import ReferenceError, decode_reference
from realtime.server.audio.level import F32
from realtime.server.audio.reference import MAX_S, MIN_S
from realtime.server.bridge import EngineError
from realtime.server.config import ServerConfig
from realtime.server.errors import ApiError
from realtime.server.off_loop import off_loop
from realtime.server.public_fetch import FetchError, fetch
from realtime.server.served_models import ServedModel
from realtime.server.services import Services
from realtime.server.shared_cache import SharedCache

MAX_REF_BYTES = 10 << 20
MAX_SOUND_BYTES = 64 << 20  # 30 s are 3 MB
MAX_CODES_BYTES = 32 << 20  # 30 s are 12 KB

TURN_S = (0.1, 120.0)
"""Shortest and longest turn of a dialogue."""

Kind = Literal["reference", "turn"]
"""A voice to speak with, or a turn of a dialogue, which keeps its loudness."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Sound:
    """A decoded recording: f32 mono `[samples]` at a model's rate, named by its content."""

    pcm: F32
    name: str


class References:
    """Encodes audio of requests: each recording once, however often it is sent, or at once.

    Files are known by their bytes, and codes by the sound they were made of, so that the same sound
    in another file is not encoded again.
    """

    def __init__(self, services: Services) -> None:
        self._services, metrics = services, services.metrics
        self._sounds: SharedCache[tuple[str, int, Kind], _Sound] = SharedCache(
            MAX_SOUND_BYTES, lambda sound: sound.pcm.nbytes, metrics.counting("sounds")
        )
        self._codes: SharedCache[tuple[str, str, Kind], U16Codes] = SharedCache(
            MAX_CODES_BYTES, lambda codes: codes.nbytes, metrics.counting("codes")
        )

    async def codes(
        self, url: str, model: ServedModel, field: str = "ref_audio", kind: Kind = "reference"
    ) -> U16Codes:
        """Return the codes u16 `[frames, n_vq]`, read-only, of the audio behind `url`.

        Raises `ApiError` that names `field`.
        """
        try:
            return await self._codes_of(url, model, kind)
        except ApiError as error:
            message = error.message.replace("`ref_audio`", f"`{field}`")
            param = field.partition("[")[0]
            raise ApiError(error.status, error.code, message, param=param) from error

    async def _codes_of(self, url: str, model: ServedModel, kind: Kind) -> U16Codes:
        audio = await read_ref_audio(url, self._services.config)
        rate_hz = model.ready_info.rate_hz
        file = await off_loop(self._services, _name, audio)
        sound = await self._sounds.get(
            (file, rate_hz, kind),
            lambda: off_loop(self._services, _decode, audio, rate_hz, kind),
        )
        return await self._codes.get(
            (sound.name, model.name, kind), lambda: _encode(sound.pcm, model, kind)
        )


def _name(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _decode(audio: bytes, rate_hz: int, kind: Kind) -> _Sound:
    min_s, max_s = TURN_S if kind == "turn" else (MIN_S, MAX_S)
    try:
        pcm = decode_reference(audio, rate_hz, min_s=min_s, max_s=max_s)
    except ReferenceError as error:
        raise _refuse("bad_audio", str(error)) from error
    return _Sound(pcm, _name(pcm.tobytes()))


async def _encode(pcm: F32, model: ServedModel, kind: Kind) -> U16Codes:
    try:
        codes = await model.encode(pcm, keep_loudness=kind == "turn")
    except EngineError as error:
        raise ApiError(503, "engine_failed", str(error), param="ref_audio") from error
    codes.setflags(write=False)  # all requests share them
    return codes


async def read_ref_audio(url: str, config: ServerConfig) -> bytes:
    """Return the bytes behind `url`. Raises `ApiError` 400.

    `data:` is always taken, `http:` and `https:` only if the operator allowed it, and then from
    public addresses; anything else never.
    """
    scheme = url.partition(":")[0].lower()
    if scheme == "data":
        return decode_data_url(url)
    if scheme in ("http", "https") and config.allow_remote_ref_audio:
        hosts = config.ref_audio_private_hosts
        try:
            return await fetch(url, max_bytes=MAX_REF_BYTES, private_hosts=hosts)
        except FetchError as error:
            code = "ref_audio_forbidden" if error.forbidden else "bad_audio"
            raise _refuse(code, f"`ref_audio` {error}") from error
    if scheme in ("http", "https", "file"):
        message = f"`ref_audio` must be sent inline; {scheme}: URLs are not opened by this server"
        raise _refuse("ref_audio_forbidden", message)
    raise _refuse("invalid_field", '`ref_audio` must be a URL "data:audio/wav;base64,..."')


def decode_data_url(url: str) -> bytes:
    """Decode `data:TYPE;base64,DATA`. Raises `ApiError` 400."""
    head, comma, data = url.partition(",")
    if not comma or not head.lower().endswith(";base64"):
        raise _refuse("invalid_field", "`ref_audio` is a data: URL without `;base64,`")
    try:
        audio = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise _refuse("invalid_field", f"`ref_audio` is not base64: {error}") from error
    if len(audio) > MAX_REF_BYTES:
        raise _refuse("bad_audio", f"`ref_audio` is larger than {MAX_REF_BYTES >> 20} MiB")
    return audio


def _refuse(code: str, message: str) -> ApiError:
    return ApiError(400, code, message, param="ref_audio")
