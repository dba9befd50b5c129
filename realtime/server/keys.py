"""API keys: who may call. Only their digests are kept."""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import re
from collections.abc import Iterable
from pathlib import Path

from realtime.server.config import ConfigError, ServerConfig

_ENTRY = re.compile(r"(?:([A-Za-z0-9_.-]{1,64}):)?([!-+\--9;-~]{16,256})")
_HOW = "write NAME:KEY or KEY, the key of 16 to 256 visible ASCII characters but `,` and `:`"


@dataclasses.dataclass(frozen=True, slots=True)
class ApiKey:
    """`name` stands for the key in logs and limits; `digest` is its SHA-256.

    A plain hash is enough: keys are long and random, so nobody can go through all of them.
    """

    name: str
    digest: bytes


class ApiKeys:
    """The keys of a server; false when there are none, and everybody may call."""

    def __init__(self, keys: Iterable[ApiKey]) -> None:
        """Raises `ConfigError` when two keys share a name, or are the same."""
        self._keys = tuple(keys)
        for what in ("name", "digest"):
            values = [getattr(key, what) for key in self._keys]
            if len(set(values)) < len(values):
                names = ", ".join(sorted(key.name for key in self._keys))
                raise ConfigError(f"two API keys have the same {what}; the keys are {names}")

    def __bool__(self) -> bool:
        return bool(self._keys)

    def find(self, presented: str) -> ApiKey | None:
        """Return the key that was presented. Takes equally long whichever it is."""
        digest = _digest(presented)
        found = None
        for key in self._keys:
            if hmac.compare_digest(digest, key.digest):
                found = key
        return found

    def named(self, name: str) -> ApiKey | None:
        """Return the key of that name."""
        return next((key for key in self._keys if key.name == name), None)


def read_api_keys(config: ServerConfig) -> ApiKeys:
    """Read the keys of the configuration and of its file.

    In the file blank lines and those that begin with `#` are no keys. Raises `ConfigError`, which
    never shows a key.
    """
    keys = [_parse(entry, f"key {n} of MOSS_API_KEYS") for n, entry in _numbered(config.api_keys)]
    if config.api_keys_file:
        path = Path(config.api_keys_file).expanduser()
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"--api-keys-file {str(path)!r} cannot be read: {error}") from None
        entries = [(n, line.strip()) for n, line in _numbered(lines)]
        keys += [
            _parse(line, f"line {n} of {path}") for n, line in entries if line and line[0] != "#"
        ]
        if not keys:
            raise ConfigError(f"--api-keys-file {str(path)!r} holds no key; {_HOW}, one a line")
    return ApiKeys(keys)


def _numbered(lines: Iterable[str]) -> Iterable[tuple[int, str]]:
    return enumerate(lines, start=1)


def _parse(entry: str, where: str) -> ApiKey:
    match = _ENTRY.fullmatch(entry)
    if match is None:
        raise ConfigError(f"{where} ({len(entry)} characters) is no API key; {_HOW}")
    digest = _digest(match[2])
    return ApiKey(match[1] or f"key-{digest.hex()[:8]}", digest)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
