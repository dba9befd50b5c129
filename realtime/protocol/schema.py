"""Plain maps to message dataclasses and back, by the dataclasses' own annotations."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import functools
import math
import types
from collections.abc import Callable
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from realtime.protocol.constraints import Length, Range
from realtime.protocol.errors import ErrorCode, ProtocolError

_MAX_DEPTH = 32
_Parse = Callable[[Any, str], Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Reading:
    """How to read: `strict` refuses unknown fields and unknown literal strings.

    `base64_bytes` reads bytes from base64 strings, as JSON carries them.
    """

    strict: bool
    base64_bytes: bool


def parse(cls: Any, value: Any, path: str, reading: Reading) -> Any:
    """Make a `cls` from a plain map; raises `ProtocolError` that names the field."""
    return _parser(cls, reading)(value, path)


def plain(value: Any, *, base64_bytes: bool) -> Any:
    """Return the plain map of a message, without its None fields."""
    if dataclasses.is_dataclass(value):
        fields = ((f.name, getattr(value, f.name)) for f in dataclasses.fields(value))
        return {
            name: plain(field, base64_bytes=base64_bytes)
            for name, field in fields
            if field is not None
        }
    if isinstance(value, tuple):
        return [plain(entry, base64_bytes=base64_bytes) for entry in value]
    if isinstance(value, bytes) and base64_bytes:
        return base64.b64encode(value).decode("ascii")
    return value


def _refuse(path: str, complaint: str, code: ErrorCode = "invalid_field") -> ProtocolError:
    return ProtocolError(code, f"{path} {complaint}", param=path)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


@functools.cache
def _parser(hint: Any, reading: Reading) -> _Parse:
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _message_parser(hint, reading)
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _bounded(_parser(args[0], reading), args[1:])
    if origin is Literal:
        return _literal_parser(args, reading)
    if origin in (Union, types.UnionType):
        return _union_parser(args, reading)
    if origin is tuple:
        return _tuple_parser(args, reading)
    if origin is dict:
        return _free_map
    return _SCALARS[hint](reading)


def _message_parser(cls: type[Any], reading: Reading) -> _Parse:
    hints = get_type_hints(cls, include_extras=True)
    fields = {f.name: _parser(hints[f.name], reading) for f in dataclasses.fields(cls)}
    required = [
        f.name for f in dataclasses.fields(cls) if f.default is dataclasses.MISSING
    ]  # no field has a default factory

    def parse_message(value: Any, path: str) -> Any:
        if not isinstance(value, dict):
            raise _refuse(path or "the message", f"must be a map, not {_shown(value)}")
        at = f"{path}." if path else ""
        for name in required:
            if name not in value:
                raise _refuse(f"{at}{name}", "is required")
        known = {}
        for name, field in value.items():
            if name in fields:
                known[name] = fields[name](field, f"{at}{name}")
            elif reading.strict:
                raise _refuse(f"{at}{name}", f"is not a field; there are {', '.join(fields)}")
        return cls(**known)

    return parse_message


def _bounded(inner: _Parse, constraints: tuple[Range | Length, ...]) -> _Parse:
    def parse_bounded(value: Any, path: str) -> Any:
        parsed = inner(value, path)
        for constraint in constraints:
            complaint = constraint.complaint(parsed)
            if complaint:
                raise _refuse(path, complaint[1], complaint[0])
        return parsed

    return parse_bounded


def _literal_parser(choices: tuple[Any, ...], reading: Reading) -> _Parse:
    shown = ", ".join(str(choice) for choice in choices)

    def parse_literal(value: Any, path: str) -> Any:
        if any(value == choice and type(value) is type(choice) for choice in choices):
            return value
        if isinstance(value, str) and not reading.strict:
            return value
        raise _refuse(path, f"must be one of {shown}, not {_shown(value)}")

    return parse_literal


def _union_parser(hints: tuple[Any, ...], reading: Reading) -> _Parse:
    by_kind: dict[str, _Parse] = {}
    for hint in hints:
        kind = "none" if hint is types.NoneType else _kind_of_hint(hint)
        by_kind[kind] = _parser(hint, reading) if kind != "none" else lambda value, path: None
    fallback = next(parser for kind, parser in by_kind.items() if kind != "none")

    def parse_union(value: Any, path: str) -> Any:
        return by_kind.get(_kind_of_value(value), by_kind.get("scalar", fallback))(value, path)

    return parse_union


def _kind_of_hint(hint: Any) -> str:
    if get_origin(hint) is tuple:
        return "list"
    if get_origin(hint) is dict or dataclasses.is_dataclass(hint):
        return "map"
    return "scalar"


def _kind_of_value(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, list):
        return "list"
    return "map" if isinstance(value, dict) else "scalar"


def _tuple_parser(args: tuple[Any, ...], reading: Reading) -> _Parse:
    entry_parsers = [_parser(arg, reading) for arg in args if arg is not Ellipsis]
    size = None if Ellipsis in args else len(args)

    def parse_tuple(value: Any, path: str) -> Any:
        if not isinstance(value, list) or (size is not None and len(value) != size):
            expected = "a list" if size is None else f"a list of {size}"
            raise _refuse(path, f"must be {expected}, not {_shown(value)}")
        parsers = entry_parsers * len(value) if size is None else entry_parsers
        return tuple(
            parser(entry, f"{path}[{index}]")
            for index, (parser, entry) in enumerate(zip(parsers, value, strict=True))
        )

    return parse_tuple


def _free_map(value: Any, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _refuse(path, f"must be a map, not {_shown(value)}")
    _check_free(value, path, depth=0)
    return value


def _check_free(value: Any, path: str, depth: int) -> None:
    """What comes back as it came has to survive either encoding."""
    if depth > _MAX_DEPTH:
        raise _refuse(path, f"is nested more than {_MAX_DEPTH} deep")
    if isinstance(value, dict):
        for name, entry in value.items():
            if not isinstance(name, str):
                raise _refuse(path, f"must have strings as keys, not {_shown(name)}")
            _check_free(entry, f"{path}.{name}", depth + 1)
    elif isinstance(value, list):
        for entry in value:
            _check_free(entry, path, depth + 1)
    elif isinstance(value, float) and not math.isfinite(value):
        raise _refuse(path, f"must be a finite number, not {value!r}")
    elif not (value is None or isinstance(value, str | int | float | bytes)):
        raise _refuse(path, f"may not hold {_shown(value)}")


def _string(reading: Reading) -> _Parse:
    def parse_string(value: Any, path: str) -> str:
        if not isinstance(value, str):
            raise _refuse(path, f"must be a string, not {_shown(value)}")
        return value

    return parse_string


def _boolean(reading: Reading) -> _Parse:
    def parse_boolean(value: Any, path: str) -> bool:
        if not isinstance(value, bool):
            raise _refuse(path, f"must be true or false, not {_shown(value)}")
        return value

    return parse_boolean


def _integer(reading: Reading) -> _Parse:
    def parse_integer(value: Any, path: str) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise _refuse(path, f"must be an integer, not {_shown(value)}")
        return value

    return parse_integer


def _number(reading: Reading) -> _Parse:
    def parse_number(value: Any, path: str) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise _refuse(path, f"must be a number, not {_shown(value)}")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise _refuse(path, f"must be a finite number, not {_shown(value)}")
        return number

    return parse_number


def _binary(reading: Reading) -> _Parse:
    def parse_binary(value: Any, path: str) -> bytes:
        if not reading.base64_bytes:
            if not isinstance(value, bytes):
                raise _refuse(path, f"must be bytes, not {_shown(value)}")
            return value
        if not isinstance(value, str):
            raise _refuse(path, f"must be a base64 string, not {_shown(value)}")
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError) as error:
            raise _refuse(path, f"must be base64: {error}") from None

    return parse_binary


_SCALARS: dict[Any, Callable[[Reading], _Parse]] = {
    str: _string,
    bool: _boolean,
    int: _integer,
    float: _number,
    bytes: _binary,
}
