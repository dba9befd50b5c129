"""Utterances of made-up codes, for the tiny checkpoint of the vectors."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from engine.models.realtime_prompt import RealtimePrompt
from engine.train.language.spoken import Spoken

TINY = Path(__file__).parents[3] / "vectors" / "realtime" / "tiny"
PROMPT = RealtimePrompt.from_checkpoint(TINY)
WORDS = ("the", "cat", "sat", "on", "a", "mat", "and", "saw", "some", "birds", "in", "trees")


def utterance(seed: int, speaker: str) -> Spoken:
    """A few words, two frames each, one frame of silence with no known word at the end."""
    draws = np.random.default_rng(seed)
    text = " ".join(draws.choice(WORDS, size=draws.integers(1, 12)))
    ids = tuple(PROMPT.tokenizer.encode(text))
    frames = 2 * len(ids) + 1
    tokens = np.append(np.repeat(np.arange(len(ids)), 2), -100).astype(np.int32)
    return Spoken(
        speaker=speaker,
        text_ids=ids,
        codes=draws.integers(0, PROMPT.audio_pad, (frames, PROMPT.n_vq)).astype(np.uint16),
        phonemes=draws.integers(1, 178, (frames, 4)).astype(np.int16),
        tokens=tokens,
    )


UTTERANCES = [utterance(seed, ("alto", "heart", "male")[seed % 3]) for seed in range(72)]


def phonemes() -> list[list[int]]:
    """Some for each token of the vocabulary, none for a fifth of them."""
    draws = np.random.default_rng(0)
    return [
        draws.integers(1, 178, draws.integers(1, 15)).tolist() if token % 5 else []
        for token in range(PROMPT.text_vocab)
    ]
