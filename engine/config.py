"""Every setting of the engine, with its unit and default."""

from __future__ import annotations

import dataclasses
from typing import Literal


@dataclasses.dataclass(frozen=True, slots=True)
class EngineConfig:
    """Plain, JSON-serialisable settings; `engine.host` gets them from the server process."""

    model_dir: str
    codec_dir: str
    model_name: str = "moss-tts-realtime"
    variant: str = "auto"
    """Which model of the family it is, one of `engine.models.variants`; `auto` finds out."""
    device: str = "auto"
    """`auto` takes CUDA where there is one, else the CPU."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Of the language model. `auto`: bfloat16 on CUDA, float32 on a CPU. The codec is float32."""
    threads: int = 0
    """CPU threads of the engine; 0 takes all cores but one."""
    max_rows: int = 16
    """Rows that hold a place in the working set: speaking, parked or prefilling."""
    max_queued_rows: int = 64
    """Rows waiting for a place; one more is refused."""
    max_grid_rows: int = 0
    """Longest context of one row, in grid rows; 0 is what suits the model. Its config may limit it
    further. A GPU sets memory aside for `max_rows` + 2 such contexts, a CPU as they grow."""
    cache_blocks: int = 2048
    """KV blocks of 16 grid rows kept for reuse by content."""
    host_cache_blocks: int = 0
    """Of those that had to make room, so many stay in host memory; for models on a GPU."""
    codec_slots: int = 32
    """Decoder states: one per row in use, the others remember recent dialogues."""
    encode_slots: int = 17
    """Reference clips and user utterances encoded at the same time. One is kept for what is
    complete; a user who finds none free is encoded after the commit."""
    prefill_budget_grid_rows: int = 256
    """Grid rows of prefill that may run beside one decode step."""
    chunk_ramp_frames: tuple[int, ...] = ()
    """Frames of the first codec calls of a response; the last value repeats. Empty is what suits
    the model."""
    codec_semantics: Literal["exact", "chunk_complete"] = "exact"
    deterministic: bool = False
    """Byte-identical sound whatever else runs: fixed shapes and a fixed chunk schedule."""
    warm_up: bool = True
    """Run every batch shape before `Ready`."""

    def __post_init__(self) -> None:
        """Raise `ValueError` for a chunk ramp that cannot be."""
        for frames in self.chunk_ramp_frames:
            if type(frames) is not int or frames < 1:
                raise ValueError(
                    f"chunk_ramp_frames is {self.chunk_ramp_frames!r}; "
                    "each is a whole number of frames, 1 or more"
                )
