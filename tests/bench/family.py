"""Every family of models on its tiny checkpoint: rows per second, and how soon a reply is heard.

`python -m tests.bench.family` prints JSON. The checkpoints are random and tiny, so the figures
are those of the engine around a model; they compare runs of one machine and nothing else.
"""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import load_file

from engine import api
from engine.models.realtime_prompt import RealtimePrompt
from engine.models.variants import VARIANTS
from tests.bench.long_reply import TINY_CODEC, never_ends
from tests.bench.measure import ratio, report, spread
from tests.engine.harness import SHIPPED, Harness, PromptHarness, write_random_codec

VECTORS = Path(__file__).parents[1] / "vectors"
FRAMES = 60
REPEATS = 5
ROOM = {"max_rows": 16, "max_queued_rows": 16, "codec_slots": 16, "max_grid_rows": 512}
TEXT = "A short line of speech, and another one after it. " * 3


@dataclasses.dataclass(frozen=True)
class Case:
    """A tiny model in an engine, and how a reply of at most `FRAMES` frames is asked for."""

    harness: Harness
    speak: Callable[[int], int]  # seed -> row


def realtime(directory: Path) -> Case:
    model_dir = VECTORS / "realtime" / "tiny"
    codec_dir = write_random_codec(directory, n_codebooks=16, shaped_like=TINY_CODEC)
    config = dataclasses.replace(SHIPPED, model_dir=str(model_dir), codec_dir=codec_dir, **ROOM)
    harness = Harness(config)
    prompt = RealtimePrompt.from_checkpoint(model_dir)
    nothing = np.zeros((0, 16), np.uint16)
    header = prompt.assistant_header(first=True, layout="training")
    grid = np.concatenate([prompt.system(None), header])
    ids = tuple(prompt.tokenizer.encode(TEXT))

    def speak(seed: int) -> int:
        row = harness.open(
            grid=grid, seed=seed, decoder_codes=nothing, generated=nothing, max_frames=FRAMES
        )
        harness.send(api.Feed(row, ids), api.End(row))
        return row

    return Case(harness, speak)


def delay(model: str, run: str, directory: Path) -> Case:
    model_dir = VECTORS / "delay" / model
    n_codebooks = {"tiny_a": 8, "tiny_b": 32}[model]
    codec_dir = write_random_codec(directory, n_codebooks=n_codebooks, shaped_like=TINY_CODEC)
    harness = PromptHarness(model_dir, codec_dir, **ROOM)
    never_ends(harness)
    prompt = load_file(VECTORS / "delay" / "greedy.safetensors")[f"{run}.input_ids"][0]
    sampling = VARIANTS["tts"].sampling
    return Case(
        harness,
        lambda seed: harness.speak(prompt, seed=seed, sampling=sampling, max_frames=FRAMES),
    )


def global_local(name: str, model: str, codec: str) -> Case:
    directory = VECTORS / "local_nano" / model
    harness = PromptHarness(directory / "tiny", VECTORS / "codec" / codec / "tiny", **ROOM)
    prompt = load_file(directory / "prompts.safetensors")["plain_en.input_ids"]
    sampling = VARIANTS[name].sampling
    return Case(
        harness,
        lambda seed: harness.speak(prompt, seed=seed, sampling=sampling, max_frames=FRAMES),
    )


def rows_per_second(case: Case) -> dict[str, object]:
    """Grid rows through the whole engine, codec and all, of 1 and of 16 replies at once.

    Of a second of work too, which tells more where the machine does other things beside.
    """
    rates: dict[int, list[float]] = {1: [], 16: []}
    work_rates: dict[int, list[float]] = {1: [], 16: []}
    for repeat in range(REPEATS + 1):
        for together in rates:
            started, began = time.perf_counter(), time.thread_time()
            rows = [case.speak(100 * repeat + number) for number in range(together)]
            logs = case.harness.finish(*rows)
            seconds, work_s = time.perf_counter() - started, time.thread_time() - began
            if repeat:  # the first one warms up
                steps = sum(log.done.counts.steps for log in logs)
                rates[together].append(steps / seconds)
                work_rates[together].append(steps / work_s)
    return {
        "rows_per_s": {together: spread(rates[together], 1) for together in rates},
        "rows_per_cpu_s": {together: spread(work_rates[together], 1) for together in rates},
        "throughput_16_over_1": ratio(work_rates[16], work_rates[1]),
    }


def first_audio(case: Case) -> dict[str, object]:
    """What a listener waits for: the first frame, or the last one where all is kept to the end."""
    harness, runner = case.harness, case.harness.engine.parts.runner
    first_rows, all_rows, first_ms, all_ms = [], [], [], []
    for seed in range(REPEATS):
        before, started = runner.steps_run, time.perf_counter()
        row = case.speak(seed)
        while not (row in harness.rows and harness.rows[row].of(api.Frames)):
            harness.tick()
        # The first row is drawn from the prompt and needs no step.
        first_rows.append(1 + runner.steps_run - before)
        first_ms.append(1e3 * (time.perf_counter() - started))
        harness.finish(row)
        all_rows.append(1 + runner.steps_run - before)
        all_ms.append(1e3 * (time.perf_counter() - started))
    return {
        "frames": FRAMES,
        "streaming": {"rows": spread(first_rows, 0), "ms": spread(first_ms, 1)},
        "offline": {"rows": spread(all_rows, 0), "ms": spread(all_ms, 1)},
        "offline_over_streaming": ratio(all_ms, first_ms),
    }


def main() -> None:
    """Measure everything."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        cases = {
            "realtime": realtime(root / "realtime"),
            "delay_8_codebooks": delay("tiny_a", "plain_a", root / "a"),
            "delay_32_codebooks": delay("tiny_b", "plain_b", root / "b"),
            "local": global_local("local", "local_v15", "v2"),
            "nano": global_local("nano", "nano", "nano"),
        }
        figures = {name: rows_per_second(case) for name, case in cases.items()}
        for name in ("delay_8_codebooks", "delay_32_codebooks"):
            figures[name]["first_audio"] = first_audio(cases[name])
        report("family", figures)


if __name__ == "__main__":
    main()
