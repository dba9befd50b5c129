"""What one session may ask for; sent to clients in `session.started.limits`."""

from __future__ import annotations

import dataclasses
from typing import Final


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one session. Characters are Unicode code points."""

    control_message_bytes: int = 64 * 1024
    item_message_bytes: int = 1024 * 1024
    delta_chars: int = 4096
    text_chars: int = 8000
    text_deltas_per_s: int = 200
    text_delta_burst: int = 1000
    audio_s: int = 600
    item_audio_s: int = 60
    history_grid_rows: int = 32_768
    history_audio_s: int = 1800
    history_items: int = 1000
    queued_responses: int = 8
    parallel_responses: int = 4
    text_timeout_s: int = 60
    idle_timeout_s: int = 600
    max_ahead_ms: int = 60_000


DEFAULT_LIMITS: Final = Limits()
