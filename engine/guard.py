"""Limits that end a response which does not end by itself."""

from __future__ import annotations

SECONDS_PER_TEXT_ID = 0.6
SECONDS_FREE = 3.0


def over_budget(frames: int, text_ids: int, frame_ms: float) -> bool:
    """Whether `frames` of sound are more than `text_ids` ids of text can be worth."""
    return frames * frame_ms > 1e3 * (SECONDS_PER_TEXT_ID * text_ids + SECONDS_FREE)
