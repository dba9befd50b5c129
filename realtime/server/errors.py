"""HTTP errors in OpenAI's shape: `{"error": {"message", "type", "param", "code"}}`."""

from __future__ import annotations

import json
import logging
import re
import uuid
from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Message

logger = logging.getLogger(__name__)

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}
_REQUEST_ID = re.compile(r"[!-~]{1,128}")
EXPOSED_HEADERS = (
    *("X-Request-Id", "X-Audio-Sample-Rate", "X-Audio-Channels", "X-Audio-Format"),
    *("X-Model", "X-Voice", "Retry-After"),
)
"""Headers of ours that a page of another origin may read."""
_CODES = {404: "not_found", 405: "method_not_allowed", 413: "too_large"}


class ApiError(Exception):
    """An answer other than success. `code` is for programs, `message` for people.

    `param` names the field at fault, if one is; `retry_after_s` becomes a `Retry-After` header.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        param: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.param = param
        self.headers = {} if retry_after_s is None else {"Retry-After": str(retry_after_s)}

    def body(self) -> dict[str, Any]:
        """The `error` object."""
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        return {
            "message": self.message,
            "type": _TYPES.get(self.status, kind),
            "param": self.param,
            "code": self.code,
        }


def request_id(request: Request) -> str:
    """The client's own `X-Request-Id` where it is fit for a header, else a new one."""
    given = request.headers.get("x-request-id", "")
    if not _REQUEST_ID.fullmatch(given):
        given = request.scope.setdefault("moss.request_id", uuid.uuid4().hex)
    return str(given)


async def read_body(request: Request, limit_bytes: int) -> bytes:
    """Read the whole body. Raises `ApiError` 413 as soon as it is longer than the limit."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > limit_bytes:
            raise too_large(limit_bytes)
    return bytes(body)


def limited(request: Request, limit_bytes: int) -> Request:
    """The same request, whose body raises `ApiError` 413 when it is longer than the limit."""
    received = 0

    async def receive() -> Message:
        nonlocal received
        message = await request.receive()
        received += len(message.get("body", b""))
        if received > limit_bytes:
            raise too_large(limit_bytes)
        return message

    return Request(request.scope, receive)


def too_large(limit_bytes: int) -> ApiError:
    """The error of a request body beyond its limit."""
    return ApiError(413, "too_large", f"the request is larger than {limit_bytes >> 20} MiB")


def parse_json_object(body: bytes, what: str = "the request body") -> dict[str, Any]:
    """Parse a JSON object. Raises `ApiError` 400 that says what is wrong with it."""
    try:
        value = json.loads(body)
    except UnicodeDecodeError as error:
        raise _bad_json(what, f"it is not UTF-8 (byte {error.start})") from error
    except json.JSONDecodeError as error:
        raise _bad_json(what, f"{error.msg}, line {error.lineno} column {error.colno}") from error
    except RecursionError as error:
        raise _bad_json(what, "it is nested too deeply") from error
    except ValueError as error:
        raise _bad_json(what, str(error)) from error
    if not isinstance(value, dict):
        raise _bad_json(what, f"it is {type(value).__name__}, not an object")
    return value


def _bad_json(what: str, why: str) -> ApiError:
    return ApiError(400, "invalid_json", f"{what} cannot be read as JSON: {why}")


def answer(request: Request, error: ApiError) -> Response:
    """Turn an error into a response."""
    headers = error.headers | {"X-Request-Id": request_id(request)}
    return JSONResponse({"error": error.body()}, error.status, headers=headers)


async def on_api_error(request: Request, error: Exception) -> Response:
    """Exception handler for `ApiError`."""
    assert isinstance(error, ApiError)
    return answer(request, error)


async def on_http_exception(request: Request, error: Exception) -> Response:
    """Exception handler for what starlette itself raises: no such route, method or form."""
    assert isinstance(error, HTTPException)
    message = error.detail
    if error.status_code == 404:
        message = f"there is nothing at {request.url.path}"
    elif error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "other methods")
        message = f"{request.url.path} does not take {request.method}; it takes {allowed}"
    code = _CODES.get(error.status_code, "invalid_request")
    response = answer(request, ApiError(error.status_code, code, message))
    response.headers.update(error.headers or {})
    return response


async def on_client_gone(request: Request, error: Exception) -> Response:
    """Exception handler for a client that left while it sent its request; nobody reads this."""
    logger.info("client gone path=%s", request.url.path)
    return Response(status_code=400)


async def on_crash(request: Request, error: Exception) -> Response:
    """Exception handler for our own bugs; the traceback goes to the log, not to the client."""
    return answer(
        request, ApiError(500, "internal", "the server failed; the failure has been logged")
    )


HANDLERS: Mapping[Any, Any] = {
    ApiError: on_api_error,
    HTTPException: on_http_exception,
    ClientDisconnect: on_client_gone,
    Exception: on_crash,
}
"""For `Starlette(exception_handlers=...)`."""
