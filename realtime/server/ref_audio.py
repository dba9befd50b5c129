"""Reference audio that comes within a request: a data URL, or a link where that is allowed."""

from __future__ import annotations

import base64
import binascii

import httpx

from realtime.server.errors import ApiError

MAX_REF_BYTES = 10 << 20
FETCH_TIMEOUT_S = 10.0


async def read_ref_audio(url: str, *, allow_remote: bool) -> bytes:
    """Return the bytes behind `url`. Raises `ApiError` 400.

    `data:` is always taken, `http:` and `https:` only if the operator allowed it (redirects are
    not followed), anything else never.
    """
    scheme = url.partition(":")[0].lower()
    if scheme == "data":
        return decode_data_url(url)
    if scheme in ("http", "https") and allow_remote:
        return await _fetch(url)
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
    return _checked(audio)


async def _fetch(url: str) -> bytes:
    audio = bytearray()
    try:
        async with (
            httpx.AsyncClient(timeout=FETCH_TIMEOUT_S) as client,
            client.stream("GET", url) as response,
        ):
            if response.status_code != 200:
                message = f"`ref_audio` was answered with status {response.status_code}"
                raise _refuse("bad_audio", message)
            async for part in response.aiter_bytes():
                audio += part
                if len(audio) > MAX_REF_BYTES:
                    break
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise _refuse("bad_audio", f"`ref_audio` cannot be fetched: {error}") from error
    return _checked(bytes(audio))


def _checked(audio: bytes) -> bytes:
    if len(audio) > MAX_REF_BYTES:
        raise _refuse("bad_audio", f"`ref_audio` is larger than {MAX_REF_BYTES >> 20} MiB")
    return audio


def _refuse(code: str, message: str) -> ApiError:
    return ApiError(400, code, message, param="ref_audio")
