"""`session.start` from the query of the handshake, as `?voice=heart&audio.codec=opus`."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Iterable
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from realtime.protocol.client_messages import SessionStart
from realtime.protocol.errors import ProtocolError
from realtime.protocol.schema import Reading, parse

# No fields of the session: who asks, and which session the first message will take up.
CREDENTIAL: Final = "token"
RESUMES: Final = "resumes"
_NOT_HERE: Final = ("m", "type", "event_id", "session_id", "resume", "history", "metadata")
_WORDS: Final = {"true": True, "false": False}


def start_from_query(pairs: Iterable[tuple[str, str]]) -> SessionStart | None:
    """Return the `session.start` that a query stands for; None where it names no setting.

    Its `m` is 1 and means nothing. Raises `ProtocolError` with the parameter at fault.
    """
    fields: dict[str, Any] = {}
    for path, text in pairs:
        if path in (CREDENTIAL, RESUMES):
            continue
        *parents, name = path.split(".")
        if (parents or [name])[0] in _NOT_HERE:
            raise _refuse(path, "cannot be given in a query; send a session.start")
        inner, cls = fields, SessionStart
        for parent in parents:
            inner = inner.setdefault(parent, {})
            cls = _part_of(cls, parent, path)
            if not isinstance(inner, dict):
                raise _refuse(path, f"and {parent} exclude each other")
        if name in inner:
            raise _refuse(path, "is given twice")
        inner[name] = _value(cls, name, text)
    if not fields:
        return None
    start: SessionStart = parse(
        SessionStart, {"m": 1} | fields, "", Reading(strict=True, base64_bytes=True)
    )
    return start


def _value(cls: Any, name: str, text: str) -> Any:
    """The text as the field's type; as it is where it is none such, for `parse` to complain of."""
    kinds = _kinds(get_type_hints(cls, include_extras=True).get(name))
    if str in kinds:
        return text
    if bool in kinds:
        return _WORDS.get(text, text)
    for kind in (int, float):
        if kind in kinds:
            try:
                return kind(text)
            except ValueError:
                return text
    return text


def _part_of(cls: Any, name: str, path: str) -> Any:
    for kind in _kinds(get_type_hints(cls, include_extras=True).get(name)):
        if dataclasses.is_dataclass(kind):
            return kind
    raise _refuse(path, "is not a setting of a session")


def _kinds(hint: Any) -> set[Any]:
    """The types that a field may have, those of literals included."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _kinds(args[0])
    if origin is Literal:
        return {type(choice) for choice in args}
    if origin in (Union, types.UnionType):
        return set().union(*map(_kinds, args))
    return {hint}


def _refuse(path: str, complaint: str) -> ProtocolError:
    return ProtocolError("invalid_field", f"{path[:80]} {complaint}", param=path[:80])
