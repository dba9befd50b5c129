"""Which sampling values, seed and length a response gets: request over session over model."""

from __future__ import annotations

import dataclasses
import hashlib

from engine.api import ModelInfo, Sampling
from realtime.protocol.messages import Generation

_SAMPLING_FIELDS = tuple(field.name for field in dataclasses.fields(Sampling))
_SEED_BITS = 53  # a JSON number holds it exactly


def layered(*generations: Generation | None) -> Generation:
    """Merge; of each field the first that is given counts."""
    merged: dict[str, float | int] = {}
    for generation in generations:
        if generation is not None:
            for field in dataclasses.fields(generation):
                value = getattr(generation, field.name)
                if value is not None:
                    merged.setdefault(field.name, value)
    return Generation(**merged)  # type: ignore[arg-type]


def with_defaults(generation: Generation, model: ModelInfo) -> Generation:
    """Fill what is left out with the model's own sampling values."""
    return layered(generation, Generation(**dataclasses.asdict(model.sampling_defaults)))


def sampling_of(generation: Generation) -> Sampling:
    """Return the engine's sampling values of a generation that has defaults filled in."""
    return Sampling(**{name: getattr(generation, name) for name in _SAMPLING_FIELDS})


def response_seed(generation: Generation | None, session_seed: int, ordinal: int) -> int:
    """Return the request's own seed, else a hash of the session's seed and the ordinal."""
    if generation is not None and generation.seed is not None:
        return generation.seed
    digest = hashlib.blake2b(f"{session_seed}:{ordinal}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> (64 - _SEED_BITS)


def max_frames(generation: Generation, limit_s: float, model: ModelInfo) -> int:
    """Return how many frames a response may have: `max_audio_s`, at most `limit_s`."""
    audio_s = min(generation.max_audio_s or limit_s, limit_s)
    return max(1, int(audio_s * 1000 / model.frame_ms))
