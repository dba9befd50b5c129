"""The first look at a user's data: which clips can be learned from, and why the others cannot."""

from __future__ import annotations

import dataclasses
import json
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from engine.api import U16Codes
from engine.checkpoint import CheckpointError, read_json
from engine.codec.config import CodecConfig
from engine.guard import over_budget
from engine.models.realtime import RealtimeConfig
from engine.models.realtime_prompt import RealtimePrompt, Turn
from engine.train.finetune.dialogue import reference_of, turns_of
from engine.train.finetune.manifest import Clip, Unusable
from engine.train.finetune.sound import Recording, Use, recording_for
from engine.train.journal import PROGRESS_EVERY_S
from engine.train.packing import dialogue_example

log = logging.getLogger(__name__)

LEAST_CLIPS = 5

_FASTEST_UNITS_PER_S = 12.0  # syllables, roughly; fluent speech has four to eight
_LETTERS_PER_UNIT = 3
_SHOWN = 5  # line numbers beside a note


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """What the data must fit: the checkpoints' numbers, without their weights."""

    prompt: RealtimePrompt
    model: RealtimeConfig
    codec: CodecConfig

    @classmethod
    def of(cls, model_dir: Path, codec_dir: Path) -> Target:
        """Read both configurations. Raises `CheckpointError`, also where they do not match."""
        model = RealtimeConfig.from_json(read_json(model_dir, "config.json"))
        codec = CodecConfig.from_json(read_json(codec_dir, "config.json"))
        if codec.n_codebooks < model.n_vq or codec.codebook_size > model.audio_pad:
            raise CheckpointError(
                f"{codec_dir} has {codec.n_codebooks} codebooks of {codec.codebook_size}, but the "
                f"model in {model_dir} speaks {model.n_vq} of {model.audio_pad}"
            )
        return cls(RealtimePrompt.from_checkpoint(model_dir), model, codec)

    def frames(self, recording: Recording) -> int:
        """How many frames hold all of a recording."""
        return -(-len(recording.pcm) // self.codec.samples_per_frame)


@dataclasses.dataclass(frozen=True, slots=True)
class Checked:
    """A clip that can be used, `length_s` seconds of it; what is unusual about it."""

    clip: Clip
    length_s: float
    notes: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """What a check found."""

    usable: tuple[Checked, ...]
    unusable: tuple[Unusable, ...]

    @property
    def enough(self) -> bool:
        """Whether there is anything worth starting with."""
        return len(self.usable) >= LEAST_CLIPS

    def text(self) -> str:
        """Lines for people."""
        lines = [
            f"line {one.line}: {one.audio or '?'}: left out: {one.why}" for one in self.unusable
        ]
        lines += self._noted()
        speakers = sorted({one.clip.speaker for one in self.usable})
        minutes = sum(one.length_s for one in self.usable) / 60
        lines.append(
            f"{len(self.usable)} clips can be used, {len(self.unusable)} are left out: "
            f"{minutes:.1f} minutes of {', '.join(speakers) or 'nobody'}"
        )
        if not self.enough:
            lines.append(f"at least {LEAST_CLIPS} usable clips are needed")
        return "\n".join(lines)

    def _noted(self) -> list[str]:
        """One line for each note; most are true of many clips."""
        lines_of: dict[str, list[int]] = {}
        for one in self.usable:
            for note in one.notes:
                lines_of.setdefault(note, []).append(one.clip.line)
        return [
            f"line {', '.join(map(str, numbers[:_SHOWN]))}"
            + (f" and {len(numbers) - _SHOWN} more" if len(numbers) > _SHOWN else "")
            + f": {note}"
            for note, numbers in lines_of.items()
        ]

    def json(self) -> str:
        """The same for programs, one object."""
        usable: list[dict[str, Any]] = [
            {
                "line": one.clip.line,
                "audio": str(one.clip.audio),
                "speaker": one.clip.speaker,
                "length_s": round(one.length_s, 3),
                "notes": list(one.notes),
            }
            for one in self.usable
        ]
        unusable = [dataclasses.asdict(one) for one in self.unusable]
        found = {"enough": self.enough, "usable": usable, "unusable": unusable}
        return json.dumps(found, indent=1, ensure_ascii=False)


def check(clips: Sequence[Clip], unusable: Sequence[Unusable], target: Target) -> Report:
    """Look at every clip, and at every recording that it names."""
    usable, refused = [], list(unusable)
    spoke_s = time.monotonic()
    for done, clip in enumerate(clips):
        if time.monotonic() - spoke_s > PROGRESS_EVERY_S:
            spoke_s = time.monotonic()
            log.info("checked %d of %d clips", done, len(clips))
        try:
            usable.append(_checked(clip, target))
        except ValueError as error:
            refused.append(Unusable(clip.line, str(clip.audio), str(error)))
    return Report(tuple(usable), tuple(sorted(refused, key=lambda one: one.line)))


def _checked(clip: Clip, target: Target) -> Checked:
    notes: list[str] = []
    found: dict[Path, float] = {}

    def length_only(path: Path, use: Use) -> U16Codes:
        recording = recording_for(path, use, target.codec.sample_rate)
        named = "" if path == clip.audio else f"{path.name}: "
        notes.extend(named + note for note in recording.notes)
        found[path] = recording.length_s
        return np.zeros((target.frames(recording), target.prompt.n_vq), np.uint16)

    turns = turns_of(clip, target.prompt, length_only)
    texts = [*(earlier.text for earlier in clip.turns), clip.text]
    for text, turn in zip(texts, turns, strict=True):
        if turn.role == "assistant":
            _check_fit(text, turn, target)
    example = dialogue_example(target.prompt, turns, reference_of(clip, length_only))
    rows, room = len(example.grid), target.model.backbone.max_positions
    if rows > room:
        raise ValueError(f"the dialogue is {rows} grid rows long; the model has room for {room}")
    return Checked(clip, found[clip.audio], tuple(notes))


def _check_fit(text: str, turn: Turn, target: Target) -> None:
    """Raise `ValueError` for a text that cannot be what is said in a turn."""
    units, frame_s = _units(text), 1 / target.codec.frame_rate
    length_s = len(turn.codes) * frame_s
    if units == 0:
        raise ValueError(f"nothing in its text {text!r} can be said")
    if units > _FASTEST_UNITS_PER_S * length_s:
        raise ValueError(
            f"its text of about {units} syllables cannot be said in {length_s:.1f} s: "
            "is it the text of another clip?"
        )
    if over_budget(len(turn.codes), len(turn.text_ids), 1e3 * frame_s):
        raise ValueError(
            f"{length_s:.0f} s are far too long for its text of about {units} syllables: "
            "is part of the text missing?"
        )


def _units(text: str) -> int:
    """About how many syllables a text has, whatever its script."""
    letters = sum(character.isalpha() and ord(character) < 0x3000 for character in text)
    syllabic = sum(character.isalpha() and ord(character) >= 0x3000 for character in text)
    digits = sum(character.isdigit() for character in text)
    return -(-letters // _LETTERS_PER_UNIT) + syllabic + digits
