"""`POST /v1/client_tokens`: the holder of a key gets a short-lived token for a browser."""

from __future__ import annotations

import time
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute

from realtime.protocol.errors import ProtocolError
from realtime.server.client_tokens import MAX_TOKEN_CHARS, ClientToken, new_token_id, sign
from realtime.server.credentials import caller_of
from realtime.server.errors import ApiError, parse_json_object, read_body
from realtime.server.keys import ApiKeys
from realtime.server.resource import resource
from realtime.server.services import Services
from realtime.session.pins import Pins

DEFAULT_TTL_S = 600
MAX_TTL_S = 3600
MAX_BODY_BYTES = 16 << 10


class TokenBody(BaseModel):
    """What the token is to permit. `session` holds fields of `session.start` that are fixed."""

    model_config = ConfigDict(extra="forbid")

    ttl_s: int = Field(DEFAULT_TTL_S, ge=1, le=MAX_TTL_S)
    session: dict[str, Any] = Field(default_factory=dict)
    max_sessions: int | None = Field(None, ge=1, le=10_000)
    origin: str | None = Field(None, pattern=r"^https?://[^/?#\s]+$")


def routes(services: Services) -> list[BaseRoute]:
    """The route of client tokens."""

    async def create(request: Request) -> Response:
        body = _parse(await read_body(request, MAX_BODY_BYTES))
        caller = caller_of(request.scope)
        if caller.key_name is None:
            message = "this server has no API keys to sign a token with; connect without one"
            raise ApiError(400, "no_keys", message)
        token = ClientToken(
            id=new_token_id(),
            key_name=caller.key_name,
            expires_at=int(time.time()) + body.ttl_s,
            origin=body.origin,
            max_sessions=body.max_sessions,
            session=body.session,
        )
        answer = {
            "object": "client_token",
            "token": _signed(token, services.keys),
            "expires_at": token.expires_at,
        }
        return JSONResponse(answer, 201, {"Cache-Control": "no-store"})

    return [resource("/v1/client_tokens", POST=create)]


def _parse(raw: bytes) -> TokenBody:
    try:
        body = TokenBody.model_validate(parse_json_object(raw or b"{}"))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        param = ".".join(map(str, first["loc"])) or None
        if first["type"] == "extra_forbidden":
            known = ", ".join(TokenBody.model_fields)
            message = f"unknown field `{param}`; known are {known}"
            raise ApiError(400, "unknown_field", message, param=param) from error
        message = f"`{param}`: {first['msg'].lower()}, not {first['input']!r}"
        raise ApiError(400, "invalid_field", message, param=param) from error
    try:
        Pins(body.session)
    except ProtocolError as error:
        param = f"session.{error.param}" if error.param else "session"
        raise ApiError(400, error.code, f"`session`: {error.message}", param=param) from error
    return body


def _signed(token: ClientToken, keys: ApiKeys) -> str:
    key = keys.named(token.key_name)
    assert key is not None, token.key_name
    try:
        return sign(token, key)
    except ValueError as error:
        message = f"`session` holds too much: {error} (of {MAX_TOKEN_CHARS})"
        raise ApiError(400, "too_large", message, param="session") from error
