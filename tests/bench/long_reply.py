"""An hour of dialogue in one reply, on a tiny delay-pattern model: memory as the reply grows.

`python -m tests.bench.long_reply --minutes 60` prints JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import torch

from engine import api
from engine.models.delay_prompt import DelayPrompt, Fields
from engine.models.variants import VARIANTS
from tests.bench.measure import report
from tests.engine.harness import PromptHarness, write_random_codec

TINY = Path(__file__).parents[1] / "vectors" / "delay" / "tiny_a"
TINY_CODEC = Path(__file__).parents[1] / "vectors" / "codec" / "v1" / "tiny"
FRAMES_PER_MINUTE = 750
SPARE_ROWS = 1024  # for the prompt, and the rows in which the last frames run out


def ttsd_checkpoint(directory: Path, max_positions: int) -> Path:
    """The tiny model as a MOSS-TTSD whose config allows so long a context."""
    shutil.copytree(TINY, directory)
    config = json.loads((TINY / "config.json").read_text())
    config["language_config"]["max_position_embeddings"] = max_positions
    (directory / "config.json").write_text(json.dumps(config))
    return directory


def never_ends(harness: PromptHarness) -> None:
    """Bar the tiny model, which has not learned when to stop, from ending a stretch of sound."""
    runner = harness.engine.parts.runner
    runner.state._not_in_sound[runner.form.delay_slot] = True


class Listener(PromptHarness):
    """Counts what it hears and keeps none of it."""

    samples = 0
    done: api.Done | None = None

    def _take(self, event: api.Event) -> None:
        if isinstance(event, api.Frames):
            self.samples += len(event.pcm)
        elif isinstance(event, api.Done):
            self.done = event


def long_reply(minutes: int, directory: Path) -> dict[str, object]:
    """Speak for so long; returns resident memory at every tenth of it."""
    frames = FRAMES_PER_MINUTE * minutes
    model_dir = ttsd_checkpoint(directory / "MOSS-TTSD", frames + SPARE_ROWS)
    # Of few samples a frame: its memory does not depend on the length, and time is short.
    codec_dir = write_random_codec(directory / "codec", n_codebooks=8, shaped_like=TINY_CODEC)
    harness = Listener(model_dir, codec_dir, max_grid_rows=0, max_rows=1, codec_slots=1)
    info = harness.engine.parts.info
    never_ends(harness)
    prompt = DelayPrompt.from_checkpoint(model_dir, "ttsd").generation(Fields(text="[S1]On."))
    sampling, text_sampling = VARIANTS["ttsd"].sampling, VARIANTS["ttsd"].text_sampling
    assert text_sampling is not None
    row = harness.speak(
        prompt, sampling=sampling, text_sampling=text_sampling, max_frames=frames, seed=1
    )
    started, tenths = time.monotonic(), []
    while harness.done is None:
        harness.tick()
        second = harness.samples / info.rate_hz
        if second >= 6 * minutes * len(tenths):
            tenths.append({"sound_s": round(second), "rss_mib": rss_mib()})
            print(tenths[-1], round(time.monotonic() - started), "s", file=sys.stderr, flush=True)
    assert harness.done.row == row
    tenths.append({"sound_s": round(harness.samples / info.rate_hz), "rss_mib": rss_mib()})
    working = harness.engine.parts.runner.working.store
    return {
        "sound_s": harness.samples / info.rate_hz,
        "reason": harness.done.reason,
        "max_grid_rows": info.max_grid_rows,
        "steps": harness.done.counts.steps,
        "kv_bytes_per_grid_row": working[:, :, 0, :, 0].numel() * working.element_size(),
        "rss": tenths,
        "wall_s": round(time.monotonic() - started),
        "cpu_s": round(time.process_time()),
    }


def rss_mib() -> float:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=int, default=60)
    minutes = parser.parse_args().minutes
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as directory:
        report("long_reply", {"minutes": minutes, **long_reply(minutes, Path(directory))})


if __name__ == "__main__":
    main()
