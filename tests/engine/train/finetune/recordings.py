"""Recordings for tests: something like speech, and what users have instead of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

VECTORS = Path(__file__).parents[3] / "vectors"
MODEL, CODEC = VECTORS / "realtime" / "tiny", VECTORS / "codec" / "v1" / "tiny"
TEXT = "Good morning, how can I help you today?"


def babble(seconds: float, rate_hz: int = 24_000, pitch_hz: float = 120.0, seed: int = 0):
    """Sound that comes and goes four times a second: f32 [samples], peak 0.5."""
    time_s = np.arange(int(seconds * rate_hz)) / rate_hz
    noise = np.random.default_rng(seed).normal(0, 0.02, len(time_s))
    voice = sum(np.sin(2 * np.pi * pitch_hz * n * time_s) / n for n in range(1, 5))
    sound = (0.6 + 0.4 * np.sin(2 * np.pi * 4 * time_s)) * voice + noise
    return (0.5 * sound / np.abs(sound).max()).astype(np.float32)


def write(path: Path, sound: Any, rate_hz: int = 24_000) -> str:
    soundfile.write(path, sound, rate_hz, subtype="PCM_16")
    return path.name


def write_manifest(folder: Path, lines: list[Any]) -> Path:
    path = folder / "manifest.jsonl"
    text = "".join((x if isinstance(x, str) else json.dumps(x)) + "\n" for x in lines)
    path.write_text(text, encoding="utf-8")
    return path


def good_clips(folder: Path, count: int, **fields: Any) -> list[dict[str, Any]]:
    """Lines of `count` clips that can be used, one to three seconds each."""
    return [
        {"audio": write(folder / f"{fields.get('speaker', 'clip')}{number}.wav", sound), **fields}
        | {"text": TEXT}
        for number, sound in enumerate(
            babble(2.0 + number % 3, pitch_hz=100 + 5 * number, seed=number)
            for number in range(count)
        )
    ]
