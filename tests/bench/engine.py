"""The engine on the shipped voice: first audio, real-time factor, throughput, overhead, peers.

`python -m tests.bench.engine` prints JSON. Ratios are of runs that alternate in one process.
"""

from __future__ import annotations

import dataclasses
import resource
import subprocess
import sys
import time

import numpy as np
import torch

from engine import api
from engine.cache.working_set import WorkingSet
from engine.models.realtime import RealtimeModel
from engine.sampler import Sampler
from kernels.attention import attend_rows
from tests.bench.measure import ratio, report, spread, times_s
from tests.bench.peer import PlainLoop
from tests.engine.harness import SHIPPED, Harness

ROWS = (1, 4, 16)
CONTEXT = 300
TEXT = (
    "The train to Boston leaves from platform nine in twenty minutes, so take your time, "
    "have a coffee, and call me when you are there."
)
SAMPLING = api.Sampling(temperature=0.6, top_p=0.9, top_k=30, repetition_penalty=1.1)
CONFIG = dataclasses.replace(SHIPPED, max_rows=16, max_queued_rows=16, codec_slots=16, warm_up=True)
FRAMES = 100


def speaking(harness: Harness) -> dict[str, object]:
    """Rows that start together: first audio and real-time factor through the whole engine."""
    figures = {}
    for rows in ROWS:
        first_ms, factors = [], []
        for run in range(6):
            started = time.perf_counter()
            opened = [
                harness.open(TEXT, seed=run * 100 + n, sampling=SAMPLING, max_frames=FRAMES)
                for n in range(rows)
            ]
            heard: dict[int, float] = {}
            while not all(row in harness.rows and harness._is_over(row) for row in opened):
                harness.tick()
                for row in opened:
                    if row not in heard and row in harness.rows:
                        heard[row] = time.perf_counter()
            wall_s = time.perf_counter() - started
            if run:  # the first one warms up
                sound_s = sum(len(harness.rows[row].pcm) for row in opened) / 24_000
                first_ms += [1e3 * (heard[row] - started) for row in opened]
                factors.append(wall_s * rows / sound_s)
        figures[f"rows_{rows}"] = {
            "first_audio_ms": spread(first_ms, 1),
            "real_time_factor_per_row": spread(factors),
            "audio_s_per_s": spread([rows / factor for factor in factors], 2),
        }
    return figures


def language_model(harness: Harness) -> dict[str, object]:
    """A frame (backbone step, depth pass, draws) of 1, 4 and 16 rows."""
    runner = harness.engine.parts.runner
    for slot in range(1, 17):
        runner.open(slot, SAMPLING, slot)
    seconds = {rows: [] for rows in ROWS}
    batches = {}
    for rows in ROWS:
        step, draw = runner._batch(rows, 2 + runner.columns), runner._batch(rows, 3)
        step[:, 0] = draw[:, 0] = np.arange(1, rows + 1)
        step[:, 1] = CONTEXT
        batches[rows] = (step, draw)
    for _ in range(40):
        for rows, (step, draw) in batches.items():
            seconds[rows] += times_s(
                lambda s=step, d=draw: (runner._step(s), runner._draw(d)), 1, 1
            )
    for slot in range(1, 17):
        runner.close(slot)
    return {
        "frame_ms": {rows: spread([1e3 * s for s in seconds[rows]], 2) for rows in ROWS},
        "throughput_16_over_1": ratio([16 * s for s in seconds[1]], seconds[16]),
        "throughput_4_over_1": ratio([4 * s for s in seconds[1]], seconds[4]),
    }


def codec(harness: Harness) -> dict[str, object]:
    """A codec call of 1, 4 and 15 frames for 1, 4 and 16 rows."""
    stream = harness.engine.parts.codec._stream
    figures = {}
    for frames in (1, 4, 15):
        seconds = {rows: [] for rows in ROWS}
        for _ in range(15):
            for rows in ROWS:
                codes = torch.zeros(rows, frames, harness.engine.parts.info.n_vq, dtype=torch.int64)
                seconds[rows] += times_s(lambda r=rows, c=codes: stream.step(range(r), c), 1, 1)
        figures[f"chunk_{frames}"] = {
            "call_ms": {rows: spread([1e3 * s for s in seconds[rows]], 2) for rows in ROWS},
            "throughput_16_over_1": ratio([16 * s for s in seconds[1]], seconds[16]),
        }
    return figures


def overhead(harness: Harness) -> dict[str, object]:
    """A tick of the engine against the same modules called bare, at the same batch and context."""
    model: RealtimeModel = harness.engine.parts.runner.model
    figures = {}
    for rows in (1, 16):
        bare = _bare_frame(model, rows)
        opened = _endless_rows(harness, rows)
        ticks, frames = [], []
        for _ in range(60):
            ticks += times_s(lambda: _tick_without_codec(harness), 1, 0)
            frames += times_s(bare, 1, 0)
        harness.send(*(api.Cancel(row) for row in opened))
        harness.tick()
        figures[f"rows_{rows}"] = {
            "engine_ms": spread([1e3 * s for s in ticks], 2),
            "bare_ms": spread([1e3 * s for s in frames], 2),
            "engine_over_bare": ratio(ticks, frames),
        }
    return figures


def _endless_rows(harness: Harness, rows: int) -> list[int]:
    """Rows in the middle of their speech, with text that never ends."""
    grid = np.tile(harness.context(), (CONTEXT // len(harness.context()), 1))
    opened = [harness.open(grid=grid, sampling=SAMPLING, seed=n) for n in range(rows)]
    ids = tuple(harness.prompt.tokenizer.encode(TEXT)) * 40
    harness.send(*(api.Feed(row, ids) for row in opened))
    runner = harness.engine.parts.runner
    while runner.steps_run == 0 or any(r.state.value != "speaking" for r in _placed(harness)):
        harness.tick()
    harness.tick(5)
    return opened


def _placed(harness: Harness):
    return harness.engine.parts.scheduler.placed


def _tick_without_codec(harness: Harness) -> None:
    """The tick, with the codec's work left out: the bare modules have none either."""
    stage = harness.engine.parts.codec
    run, stage.run = stage.run, lambda next_frame_ms: []
    harness.tick()
    del stage.run
    assert stage.run.__func__ is run.__func__
    for voice in stage._voices.values():
        voice.pending.clear()


def _bare_frame(model: RealtimeModel, rows: int):
    """Backbone, depth and sampler over a contiguous cache, without an engine around them."""
    config = model.config
    layers, heads, head_dim = (
        config.backbone.layers,
        config.backbone.kv_heads,
        config.backbone.head_dim,
    )
    room = CONTEXT + 84
    keys = torch.randn(layers, rows, heads, room, head_dim)
    values = torch.randn(layers, rows, heads, room, head_dim)
    sampler = Sampler(
        rows, config.n_vq, config.audio_vocabulary, config.audio_eos, torch.device("cpu")
    )
    for slot in range(rows):
        sampler.open(slot, SAMPLING, slot)
    rotations = config.backbone.rotations(room, like=keys)
    slots = torch.arange(rows)
    grid = torch.zeros(rows, 1 + config.n_vq, dtype=torch.int64)
    position = CONTEXT

    def attend(layer, q, k, v):
        keys[layer, :, :, position] = k
        values[layer, :, :, position] = v
        reach = position + 1
        return attend_rows(q, keys[layer, :, :, :reach], values[layer, :, :, :reach], None)

    @torch.inference_mode()
    def frame():
        nonlocal position
        position = CONTEXT + (position + 1 - CONTEXT) % 80
        rotation = rotations[position].expand(rows, -1, -1)
        hidden = model.backbone(grid, rotation, attend)
        count = torch.full((rows,), position - CONTEXT)
        codes = model.depth(hidden, sampler.draw(slots, count, count))
        sampler.record(slots, codes, count)
        grid[:, 1:] = codes

    return frame


def peer(harness: Harness) -> dict[str, object]:
    """The same work done one request at a time on transformers' own Qwen3 classes."""
    loop = PlainLoop(harness.engine.parts.runner.model)
    rows, frames = 16, 25
    ours, theirs = [], []
    for _ in range(4):
        started = time.perf_counter()
        opened = [
            harness.open(TEXT, seed=n, sampling=SAMPLING, max_frames=frames) for n in range(rows)
        ]
        harness.finish(*opened)
        made = sum(len(harness.rows[row].codes) for row in opened)
        ours.append((time.perf_counter() - started) / made)
        started = time.perf_counter()
        for _ in range(rows):
            loop.speak(harness.context(), harness.prompt.tokenizer.encode(TEXT), frames)
        theirs.append((time.perf_counter() - started) / (rows * frames))
    return {
        "requests": rows,
        "engine_ms_per_frame": spread([1e3 * s for s in ours[1:]], 2),
        "plain_loop_ms_per_frame": spread([1e3 * s for s in theirs[1:]], 2),
        "engine_is_faster_by": ratio(theirs[1:], ours[1:]),
        "note": "the engine's figure includes its codec, the plain loop has none",
    }


def start_up() -> dict[str, object]:
    """Seconds and memory of a fresh process until `Ready`."""
    script = (
        "import time,resource;t=time.time();"
        "import dataclasses;from tests.engine.harness import SHIPPED;"
        "from engine.loop import EngineLoop;from engine import api;"
        "e=EngineLoop([dataclasses.replace(SHIPPED,max_rows=16,codec_slots=16,warm_up=True)],"
        "lambda event:None);e.submit(api.Stop(0));e.run();"
        "print(time.time()-t,resource.getrusage(resource.RUSAGE_SELF).ru_maxrss/1024)"
    )
    seconds, mebibytes = [], []
    for _ in range(3):
        out = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True
        )
        second, mebibyte = map(float, out.stdout.split())
        seconds.append(second)
        mebibytes.append(mebibyte)
    return {"to_ready_s": spread(seconds, 1), "peak_rss_mib": spread(mebibytes, 0)}


def state_bytes(harness: Harness) -> dict[str, object]:
    """Memory that the engine keeps for one row and one dialogue."""
    working: WorkingSet = harness.engine.parts.runner.working
    row_bytes = working.store[:, :, 0, :, 0].numel() * working.store.element_size()
    codec = harness.engine.parts.codec
    state_bytes = sum(ring.kv.numel() * ring.kv.element_size() for ring in codec._stream.pool.rings)
    slot_bytes = state_bytes / (codec.slots + 1)
    return {
        "kv_bytes_per_grid_row": row_bytes,
        "kv_mib_per_minute_of_dialogue": round(row_bytes * 750 / 2**20, 2),
        "codec_slot_mib": round(slot_bytes / 2**20, 2),
        "process_rss_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def main() -> None:
    """Measure everything."""
    torch.set_num_threads(1)
    harness = Harness(CONFIG)
    harness.engine.parts.runner.warm_up(16)
    harness.engine.parts.codec.warm_up(16)
    report(
        "engine",
        {
            "start_up": start_up(),
            "speaking": speaking(harness),
            "language_model": language_model(harness),
            "codec": codec(harness),
            "overhead": overhead(harness),
            "against_a_plain_loop": peer(harness),
            "memory": state_bytes(harness),
        },
    )


if __name__ == "__main__":
    main()
