"""The recordings that a model imitates, and their codes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray
from safetensors.numpy import load_file

from engine.codec.codec import AudioCodec
from engine.train.evaluation.resynthesis import encode
from engine.train.evaluation.speech import TEACHER_VOICES, Line, Said, teacher_speech

_TEXT = "This is how I sound when I read a short and simple sentence."


def read_references(directory: Path | None) -> list[Said]:
    """Return the recording of each voice: `NAME.wav` of a folder, or the teacher's own voices.

    Raises `ValueError` for a folder without a recording.
    """
    if directory is None:
        return teacher_speech([Line(_TEXT, voice) for voice in TEACHER_VOICES])
    references = []
    for path in sorted(directory.glob("*.wav")):
        sound, rate_hz = soundfile.read(path, dtype="float32", always_2d=True)
        references.append(Said(Line("", path.stem), sound.mean(1), rate_hz))
    if not references:
        raise ValueError(f"{directory} has no NAME.wav: give the folder of the voices")
    return references


def reference_codes(
    references: Sequence[Said], directory: Path | None, codec: AudioCodec, codebooks: int
) -> dict[str, NDArray[np.uint16]]:
    """Return the codes u16 [frames, codebooks] of each voice: those on disk, where they fit.

    What a server reads from the folder is read here too, so that both speak from the same codes.
    """
    path = directory / "references.safetensors" if directory else None
    stored = load_file(path) if path and path.is_file() else {}
    codes = {}
    for reference in references:
        name = reference.line.voice
        if name in stored and stored[name].shape[1:] == (codebooks,):
            codes[name] = stored[name].astype(np.uint16)
        else:
            codes[name] = encode(codec, reference, codebooks)
    return codes
