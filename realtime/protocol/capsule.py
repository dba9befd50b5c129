"""A dialogue in one piece of bytes: text and codes, to be kept anywhere and taken up anywhere.

A capsule is a msgpack map, read like a message: what is wrong with one is said with its place.
Codes are packed at their own width (10 bits for a codebook of 1,024), so that sound takes 2 kbit/s.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import msgpack

from realtime.protocol.codec import unpack_msgpack
from realtime.protocol.constraints import Length, Range
from realtime.protocol.errors import ProtocolError
from realtime.protocol.parts import Id, SpokenText, Text
from realtime.protocol.schema import Reading, parse, plain

VERSION = 1
_READING = Reading(strict=True, base64_bytes=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CapsuleCodes:
    """Codes `[frames, n_vq]`, row by row, each `bits` wide, low bits first, filled up with 0."""

    frames: Annotated[int, Range(0, 1_000_000)]
    bits: Annotated[int, Range(1, 16)]
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class CapsulePiece:
    """Text that is spoken otherwise than it is written."""

    spoken: SpokenText
    written: Text


@dataclass(frozen=True, slots=True, kw_only=True)
class CapsulePart:
    """Text and sound that belong together: one turn of the model.

    `whole` is false where the sound does not reach the end of the text.
    """

    pieces: tuple[CapsulePiece, ...] = ()
    codes: CapsuleCodes | None = None
    whole: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class CapsuleItem:
    """An item of the history, as it was heard."""

    id: Id
    role: Literal["user", "assistant"]
    parts: tuple[CapsulePart, ...]
    generated_text: Text | None = None
    in_context: bool = True
    exact: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Capsule:
    """A history, oldest item first. `voice` is the id of the one that speaks in its context."""

    version: Literal[1] = 1
    model: Annotated[str, Length(1, 256)]
    n_vq: int
    codebook_size: int
    voice: Id | None = None
    items: tuple[CapsuleItem, ...] = ()


def write_capsule(capsule: Capsule) -> bytes:
    """Return the capsule's bytes."""
    data: bytes = msgpack.packb(plain(capsule, base64_bytes=False), unicode_errors="surrogatepass")
    return data


def read_capsule(data: bytes) -> Capsule:
    """Read a capsule; raises `ProtocolError` that names the place, as `capsule.items[3].role`."""
    try:
        fields = unpack_msgpack(data)
    except (ValueError, RecursionError, msgpack.UnpackException) as error:
        reason = str(error) or type(error).__name__
        raise ProtocolError(
            "invalid_field", f"capsule is damaged: it is not msgpack ({reason})", param="capsule"
        ) from None
    if isinstance(fields, dict) and fields.get("version", VERSION) != VERSION:
        raise ProtocolError(
            "unsupported",
            f"capsule.version is {fields['version']!r:.40}; this server reads version {VERSION}",
            param="capsule.version",
        )
    capsule: Capsule = parse(Capsule, fields, "capsule", _READING)
    return capsule
