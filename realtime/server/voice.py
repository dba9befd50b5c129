"""What a voice is."""

from __future__ import annotations

import dataclasses
import hashlib

from engine.api import U16Codes
from realtime.server.errors import ApiError

MAX_NAME_CHARS = 64


@dataclasses.dataclass(frozen=True, slots=True)
class CodecKey:
    """Which codes fit: the codec's fingerprint and how many codebooks the model uses."""

    codec: str
    n_vq: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class VoiceDetails:
    """All about a voice but its codes.

    `created_at` is in Unix seconds, `audio_sha256` the digest of the recording as it came.
    """

    id: str
    name: str
    ref_text: str
    consent: str
    created_at: int
    duration_s: float
    builtin: bool
    audio_sha256: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Voice(VoiceDetails):
    """An encoded reference: `codes` u16 `[frames, n_vq]`."""

    codes: U16Codes


def with_codes(details: VoiceDetails, codes: U16Codes) -> Voice:
    """The voice that `details` describe."""
    fields = dataclasses.fields(VoiceDetails)
    return Voice(**{field.name: getattr(details, field.name) for field in fields}, codes=codes)


def voice_id(audio_sha256: str, ref_text: str) -> str:
    """The id says what the voice is made of: the recording as it came, and its transcript."""
    return "voice_" + hashlib.sha256(f"{audio_sha256}\0{ref_text}".encode()).hexdigest()[:24]


def retold(details: VoiceDetails, *, name: str | None, ref_text: str | None) -> VoiceDetails:
    """The details with another name or transcript. Another transcript makes another id.

    Raises `ApiError` for a name that cannot be used.
    """
    fields = {f.name: getattr(details, f.name) for f in dataclasses.fields(VoiceDetails)}
    if name is not None:
        fields["name"] = check_name(name)
    if ref_text is not None and ref_text != details.ref_text:
        fields["ref_text"] = ref_text
        fields["id"] = voice_id(details.audio_sha256 or details.id, ref_text)
    return VoiceDetails(**fields)


def check_name(name: str) -> str:
    """Return the name without blanks around it. Raises `ApiError` for one that cannot be used."""
    name = name.strip()
    if not name or len(name) > MAX_NAME_CHARS:
        why = f"must have 1 to {MAX_NAME_CHARS} characters, not {len(name)}"
    elif not name.isprintable() or "/" in name or "\\" in name or name in (".", ".."):
        why = f"must be printable, without slashes and not a path; it is {name!r}"
    elif name.casefold() == "default":
        why = "cannot be `default`, which stands for the server's own choice"
    else:
        return name
    raise ApiError(400, "invalid_name", f"`name` {why}", param="name")
