"""Client tokens: short-lived credentials for browsers, which must not hold an API key.

A token is what it says, signed: `ct1.<base64url of JSON>.<base64url of HMAC-SHA-256>`. The signing
secret comes from the API key that asked for it, so every server with that key accepts the token,
and taking the key away takes its tokens away.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import hashlib
import hmac
import json
import secrets
from typing import Any

from realtime.server.keys import ApiKey, ApiKeys

PREFIX = "ct1."
MAX_TOKEN_CHARS = 4096
_PURPOSE = b"moss-realtime client token 1"


class TokenError(ValueError):
    """A token that is not accepted; `code` is `invalid_token` or `token_expired`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ClientToken:
    """What a token permits.

    `expires_at` is in Unix seconds. `origin` is the page it is for, `max_sessions` how many may be
    open at once, `session` the fields of `session.start` that its sessions cannot choose.
    """

    id: str
    key_name: str
    expires_at: int
    origin: str | None = None
    max_sessions: int | None = None
    session: dict[str, Any] = dataclasses.field(default_factory=dict)


def new_token_id() -> str:
    """Return an id that no other token has."""
    return secrets.token_urlsafe(9)


def sign(token: ClientToken, key: ApiKey) -> str:
    """Return the token as its holder presents it. Raises `ValueError` where it gets too long."""
    payload = json.dumps(dataclasses.asdict(token), separators=(",", ":")).encode()
    text = f"{PREFIX}{_encode(payload)}.{_encode(_signature(payload, key))}"
    if len(text) > MAX_TOKEN_CHARS:
        raise ValueError(f"the token has {len(text)} characters; at most {MAX_TOKEN_CHARS} travel")
    return text


def verify(text: str, keys: ApiKeys, now_s: float) -> ClientToken:
    """Read a token that was presented. Raises `TokenError`."""
    payload_text, _, signature_text = text.removeprefix(PREFIX).partition(".")
    try:
        payload, signature = _decode(payload_text), _decode(signature_text)
        token = ClientToken(**json.loads(payload))
    except (ValueError, TypeError, RecursionError):
        raise TokenError("invalid_token", "the client token cannot be read") from None
    key = keys.named(token.key_name)
    if key is None or not hmac.compare_digest(signature, _signature(payload, key)):
        raise TokenError("invalid_token", "the client token was not signed by a key of this server")
    if now_s >= token.expires_at:
        raise TokenError("token_expired", "the client token has expired; ask for a new one")
    return token


def _signature(payload: bytes, key: ApiKey) -> bytes:
    secret = hmac.digest(key.digest, _PURPOSE, hashlib.sha256)
    return hmac.digest(secret, payload, hashlib.sha256)


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode("ascii").rstrip("=")


def _decode(text: str) -> bytes:
    padded = text + "=" * (-len(text) % 4)
    try:
        return base64.b64decode(padded, altchars="-_", validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from None
