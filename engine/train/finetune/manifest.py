"""The list of a user's recordings: one JSON object a line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

Role = Literal["user", "assistant"]

ONLY_SPEAKER = "voice"
"""Name of the speaker of a line that names none."""

_FIELDS = frozenset({"audio", "text", "speaker", "turns", "ref_audio"})
_TURN_FIELDS = frozenset({"role", "text", "audio"})
_MOST_NAME_CHARS = 64


class ManifestError(ValueError):
    """A manifest that cannot be used at all; the message is for the person who wrote it."""


@dataclass(frozen=True, slots=True)
class Earlier:
    """A turn before the clip; a user's may be without sound."""

    role: Role
    text: str
    audio: Path | None


@dataclass(frozen=True, slots=True)
class Clip:
    """One recording to learn from. `reference` is the voice to imitate; None: another clip."""

    line: int
    audio: Path
    text: str
    speaker: str = ONLY_SPEAKER
    turns: tuple[Earlier, ...] = ()
    reference: Path | None = None


@dataclass(frozen=True, slots=True)
class Unusable:
    """A line that is left out; `audio` as written, or empty."""

    line: int
    audio: str
    why: str


def read_manifest(path: Path) -> tuple[list[Clip], list[Unusable]]:
    """Read a manifest; file names in it are relative to its folder.

    A line that is wrong is `Unusable`. Raises `ManifestError` for a file that is no manifest.
    """
    if not path.is_file():
        raise ManifestError(f"there is no file {path}")
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ManifestError(f"{path} is not UTF-8 text: {error.reason}") from error
    clips: list[Clip] = []
    unusable: list[Unusable] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        entry: Any = None
        try:
            entry = json.loads(line)
            clips.append(_clip(number, entry, path.parent))
        except ValueError as error:
            why = f"not JSON: {error}" if isinstance(error, json.JSONDecodeError) else str(error)
            audio = entry.get("audio") if isinstance(entry, dict) else None
            unusable.append(Unusable(number, audio if isinstance(audio, str) else "", why))
    if not clips and not unusable:
        raise ManifestError(f"{path} is empty: write one JSON object a line")
    return clips, unusable


def _clip(number: int, entry: Any, folder: Path) -> Clip:
    _check_fields(entry, _FIELDS, "the line")
    turns = entry.get("turns", [])
    if not isinstance(turns, list):
        raise ValueError("`turns` must be a list of earlier turns")
    text = _text(entry, "text").strip()
    if not text:
        raise ValueError("its text is empty: write what is said")
    return Clip(
        line=number,
        audio=folder / _name(entry, "audio"),
        text=text,
        speaker=_speaker(entry),
        turns=tuple(_earlier(turns, folder)),
        reference=folder / _name(entry, "ref_audio") if "ref_audio" in entry else None,
    )


def _earlier(turns: list[Any], folder: Path) -> Iterator[Earlier]:
    for place, turn in enumerate(turns, start=1):
        what = f"earlier turn {place}"
        _check_fields(turn, _TURN_FIELDS, what)
        role = turn.get("role")
        if role not in get_args(Role):
            raise ValueError(f"{what} has the role {role!r}; known are {', '.join(get_args(Role))}")
        text = _text(turn, "text").strip()
        audio = folder / _name(turn, "audio") if turn.get("audio") is not None else None
        if role == "assistant" and (audio is None or not text):
            raise ValueError(f"{what} is the assistant's: it needs both audio and text")
        if audio is None and not text:
            raise ValueError(f"{what} has neither audio nor text")
        yield Earlier(role, text, audio)


def _check_fields(entry: Any, known: frozenset[str], what: str) -> None:
    if not isinstance(entry, dict):
        raise ValueError(f"{what} is {type(entry).__name__}, not a JSON object")
    unknown = sorted(entry.keys() - known)
    if unknown:
        raise ValueError(
            f"{what} has the unknown field {unknown[0]!r}; known are {', '.join(sorted(known))}"
        )


def _text(entry: dict[str, Any], field: str) -> str:
    value = entry.get(field, "")
    if not isinstance(value, str):
        raise ValueError(f"`{field}` is {value!r}, not a text")
    return value


def _name(entry: dict[str, Any], field: str) -> str:
    name = _text(entry, field)
    if not name or "\0" in name:
        raise ValueError(f"`{field}` must name a sound file")
    return name


def _speaker(entry: dict[str, Any]) -> str:
    """The name of a speaker becomes that of a voice, and of a file."""
    name = _text(entry, "speaker").strip() or ONLY_SPEAKER
    if len(name) > _MOST_NAME_CHARS or not name.isprintable() or name.casefold() == "default":
        raise ValueError(f"the speaker {name!r} needs a printable name of 1 to 64 characters")
    if any(mark in name for mark in "/\\") or name.startswith("."):
        raise ValueError(f"the speaker {name!r} becomes a file name: no slashes, no leading dot")
    return name
