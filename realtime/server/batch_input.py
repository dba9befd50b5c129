"""The lines of `moss-realtime batch`: each a speech request, and the name of its file."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterable
from typing import Any

from realtime.server.audio import FORMATS
from realtime.server.errors import ApiError, parse_json_object
from realtime.server.speech_request import VOICE_FIELDS

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")
_SUFFIXES = {"opus": "ogg"}


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """A request as the server takes it; `file` is the name its sound gets."""

    number: int  # from 1, as editors count
    file: str
    fields: dict[str, Any]

    @property
    def digest(self) -> str:
        """What the request says, so that a changed line is spoken again."""
        said = json.dumps(self.fields, sort_keys=True)
        return hashlib.sha256(said.encode()).hexdigest()


@dataclasses.dataclass(frozen=True, slots=True)
class BadLine:
    """A line that cannot be spoken, and why."""

    number: int
    problem: str


def read_lines(lines: Iterable[bytes], defaults: dict[str, Any]) -> list[Line | BadLine]:
    """Read JSON objects with the fields of `POST /v1/audio/speech`, one a line.

    `id` names the file, else the line's number does. `defaults` hold where a line says nothing.
    Blank lines are none. A line that is no request becomes a `BadLine` and changes no other.
    """
    found: list[Line | BadLine] = []
    taken: dict[str, int] = {}
    for number, text in enumerate(lines, start=1):
        if not text.strip():
            continue
        try:
            line = _read(number, parse_json_object(text, "it"), defaults)
            if first := taken.get(line.file.casefold()):
                raise ValueError(f"its sound would be {line.file!r}, as that of line {first}")
            taken[line.file.casefold()] = number
            found.append(line)
        except ApiError as error:
            found.append(BadLine(number, error.message))
        except ValueError as error:
            found.append(BadLine(number, str(error)))
    return found


def _read(number: int, fields: dict[str, Any], defaults: dict[str, Any]) -> Line:
    given = {name: value for name, value in fields.items() if value is not None}
    name = given.pop("id", f"{number:05d}")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(
            f"`id` must be a file name of letters, digits, '.', '_', '-', not {name!r}"
        )
    if given.keys() & VOICE_FIELDS:
        defaults = {key: value for key, value in defaults.items() if key not in VOICE_FIELDS}
    request = defaults | given
    audio_format = request["response_format"]
    if audio_format not in FORMATS:
        known = ", ".join(FORMATS)
        raise ValueError(f"`response_format` {audio_format!r} is not one of {known}")
    return Line(number, f"{name}.{_SUFFIXES.get(audio_format, audio_format)}", request)
