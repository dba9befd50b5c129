"""Audio that comes within a request: a data URL, or a link where that is allowed."""

from __future__ import annotations

import asyncio
import base64
import binascii
import functools
import hashlib
import weakref
from collections import OrderedDict
from typing import Literal

from engine.api import U16Codes
from realtime.server.audio import ReferenceError, decode_reference
from realtime.server.audio.reference import MAX_S, MIN_S
from realtime.server.bridge import EngineError
from realtime.server.config import ServerConfig
from realtime.server.errors import ApiError
from realtime.server.off_loop import off_loop
from realtime.server.public_fetch import FetchError, fetch
from realtime.server.served_models import ServedModel
from realtime.server.services import Services

MAX_REF_BYTES = 10 << 20
MAX_CACHED = 1024  # references; codes of 30 s are 12 KB

TURN_S = (0.1, 120.0)
"""Shortest and longest turn of a dialogue."""

Kind = Literal["reference", "turn"]
"""A voice to speak with, or a turn of a dialogue, which keeps its loudness."""

_Key = tuple[str, str, Kind]


class References:
    """Encodes audio of requests. The same recording is encoded once, however often it is sent."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._codes: OrderedDict[_Key, U16Codes] = OrderedDict()
        self._encoding: weakref.WeakValueDictionary[_Key, asyncio.Lock] = (
            weakref.WeakValueDictionary()
        )

    async def codes(
        self, url: str, model: ServedModel, field: str = "ref_audio", kind: Kind = "reference"
    ) -> U16Codes:
        """Return the codes u16 `[frames, n_vq]` of the audio behind `url`.

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
        key = (hashlib.sha256(audio).hexdigest(), model.name, kind)
        lock = self._encoding.setdefault(key, asyncio.Lock())
        async with lock:  # who comes second waits, and takes over if the first one leaves
            if key not in self._codes:
                self._codes[key] = await self._encode(audio, model, kind)
            self._codes.move_to_end(key)
            while len(self._codes) > MAX_CACHED:
                self._codes.popitem(last=False)
            return self._codes[key]

    async def _encode(self, audio: bytes, model: ServedModel, kind: Kind) -> U16Codes:
        min_s, max_s = TURN_S if kind == "turn" else (MIN_S, MAX_S)
        try:
            rate_hz = model.ready_info.rate_hz
            decode = functools.partial(decode_reference, min_s=min_s, max_s=max_s)
            pcm = await off_loop(self._services, decode, audio, rate_hz)
            return await model.encode(pcm, keep_loudness=kind == "turn")
        except ReferenceError as error:
            raise _refuse("bad_audio", str(error)) from error
        except EngineError as error:
            raise ApiError(503, "engine_failed", str(error), param="ref_audio") from error


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
