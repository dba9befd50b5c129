"""What a client token fixes of a session; its holder may repeat it, but not change it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from realtime.protocol.errors import ProtocolError
from realtime.protocol.messages import (
    ClientMessage,
    ResponseStart,
    SessionStart,
    SessionUpdate,
)
from realtime.protocol.schema import Reading, parse

_PINNABLE: Final = (
    *("model", "voice", "audio", "input_audio", "generation", "timestamps", "flow"),
    *("stall_flush_ms", "normalize", "layout", "text_only_user", "metadata"),
)
_WHOLE: Final = ("voice", "metadata")  # maps that are one value


class Pins:
    """The fixed fields of `session.start`, given as a plain map."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        """Raises `ProtocolError` for a field that is unknown, wrong or cannot be fixed."""
        for name in fields:
            if name not in _PINNABLE:
                known = ", ".join(_PINNABLE)
                raise ProtocolError(
                    "invalid_field", f"{name} cannot be fixed; there are {known}", param=name
                )
        reading = Reading(strict=True, base64_bytes=True)
        self._fixed = parse(SessionStart, {"m": 1, **fields}, "", reading)
        self._given = fields

    def apply(self, message: ClientMessage) -> ClientMessage:
        """Return the message with the fixed fields in it.

        Raises `ProtocolError` `unauthorized` where it asks for something else. Asking for a field's
        default is taken for leaving it out.
        """
        match message:
            case SessionStart():
                names = set(_PINNABLE)
            case SessionUpdate():
                names = _asked(message)
            case ResponseStart():
                names = _asked(message) & {"voice", "generation", "normalize"}
            case _:
                return message
        given = {name: field for name, field in self._given.items() if name in names}
        return dataclasses.replace(message, **_merged("", given, self._fixed, message))


def _asked(message: ClientMessage) -> set[str]:
    fields = dataclasses.fields(message)
    return {field.name for field in fields if getattr(message, field.name) is not None}


def _merged(path: str, given: Mapping[str, Any], fixed: Any, asked: Any) -> dict[str, Any]:
    """Return the `given` fields of `fixed`, each as it is to be in `asked`."""
    defaults = {field.name: field.default for field in dataclasses.fields(asked)}
    merged = {}
    for name in given:
        want, ask = getattr(fixed, name), getattr(asked, name)
        if ask is None or ask == defaults[name] or ask == want:
            merged[name] = want
        elif dataclasses.is_dataclass(want) and name not in _WHOLE:
            merged[name] = dataclasses.replace(
                ask, **_merged(f"{path}{name}.", given[name], want, ask)
            )
        else:
            message = f"{path}{name} is fixed by the client token; leave it out"
            raise ProtocolError("unauthorized", message, param=path + name)
    return merged


NO_PINS: Final = Pins({})
