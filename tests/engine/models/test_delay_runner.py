"""The batched delay-pattern runner: golden replies, frames as they come, batch and seeds."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from engine.api import Sampling, TextSampling
from engine.models.delay import load_delay
from engine.models.delay_pattern import prefix_frames, reply_start, segments
from engine.models.delay_runner import DelayRunner
from tests.engine.models.test_runner import CountOperations

DELAY = Path(__file__).parents[2] / "vectors" / "delay"
GREEDY = json.loads((DELAY / "greedy.json").read_text())
PROMPTS = {
    "continuation_a": "continuation_clone_a",
    "continuation_a_rep1.2": "continuation_clone_a",
    "ttsd_continuation_a": "ttsd_voice_clone_and_continuation",
}
COUPLED = "batch2_cont_rep_a"
SINGLE = [name for name, run in GREEDY.items() if run["batch"] == 1]
WARM = Sampling(temperature=1.7, top_p=0.8, top_k=25, repetition_penalty=1.1, repetition_window=0)


class Row:
    """What the runner sees of a row."""

    def __init__(self, slot, grid):
        self.slot, self.position, self.steps, self.grid = slot, 0, 0, grid
        self.frames, self.rows, self.is_over = [], [], False

    def advance(self, rows):
        self.position += len(rows)

    def take(self, drawn):
        self.rows.append(drawn.grid_row)
        self.is_over = drawn.ends
        if drawn.frame is not None:
            self.frames.append(drawn.frame)


@pytest.fixture(scope="module")
def models():
    return {name: load_delay(DELAY / f"tiny_{name}") for name in "ab"}


@pytest.fixture(scope="module")
def runs():
    return load_file(DELAY / "greedy.safetensors")


@pytest.fixture(scope="module")
def grids():
    return load_file(DELAY / "prompts.safetensors")


def greedy(penalty=1.0):
    return Sampling(temperature=0.0, repetition_penalty=penalty, repetition_window=0)


def start(runner, row, sampling, text_sampling, seed=0, piece=50):
    grid = row.grid.astype(np.int32)
    runner.open(row.slot, sampling, seed, grid, text_sampling)
    for first in range(0, len(grid), piece):
        runner.prefill(row.slot, first, grid[first : first + piece])
        row.advance(grid[first : first + piece])


def speak(runner, rows, steps):
    for step in range(steps):
        live = [row for row in rows if not row.is_over]
        if not live:
            break
        if step:
            runner.step(live)
        for row, drawn in zip(live, runner.draw(live), strict=True):
            row.take(drawn)


def prompts_of(name, runs, grids):
    """The prompts of a golden run, without padding."""
    if f"{name}.input_ids" not in runs:
        prompt = PROMPTS.get(name)
        return list(grids[f"{prompt}.input_ids"] if prompt else runs["plain_a.input_ids"])
    mask = runs.get(f"{name}.attention_mask")
    grid = runs[f"{name}.input_ids"]
    return [rows if mask is None else rows[mask[i].astype(bool)] for i, rows in enumerate(grid)]


def run_greedy(models, name, prompts):
    run = GREEDY[name]
    model = models[run["model"].removeprefix("tiny_")]
    runner = DelayRunner(model, len(prompts) + 1, 512, deterministic=False)
    penalty = run["kwargs"].get("audio_repetition_penalty", 1.0)
    rows = [Row(slot, prompt) for slot, prompt in enumerate(prompts, 1)]
    for row in rows:
        start(runner, row, greedy(penalty), TextSampling(temperature=0.0))
    speak(runner, rows, run["kwargs"]["max_new_tokens"])
    return rows


@pytest.mark.parametrize("name", [*SINGLE, "batch2_a"])
def test_golden_replies(name, models, runs, grids):
    rows = run_greedy(models, name, prompts_of(name, runs, grids))
    for row, want in zip(rows, runs[f"{name}.new_rows"], strict=True):
        assert row.is_over or len(row.rows) == len(want)
        np.testing.assert_array_equal(row.rows, want[: len(row.rows)])
        pad = want[len(row.rows) :]  # of a reply that was over before the other
        assert (pad[:, 0] == 428).all()


def test_a_row_is_penalised_for_its_own_past_only(models, runs, grids):
    """Upstream's penalty takes in the other rows of the batch; its golden run shows it."""
    prompts = prompts_of(COUPLED, runs, grids)
    together = run_greedy(models, COUPLED, prompts)
    for row, prompt in zip(together, prompts, strict=True):
        [alone] = run_greedy(models, COUPLED, [prompt])
        np.testing.assert_array_equal(alone.rows, row.rows)
    upstream = runs[f"{COUPLED}.new_rows"]
    assert any(
        not np.array_equal(row.rows, want[: len(row.rows)])
        for row, want in zip(together, upstream, strict=True)
    )


@pytest.mark.parametrize("name", SINGLE)
def test_frames_as_they_come_are_those_of_the_whole_reply(name, models, runs, grids):
    [prompt] = prompts_of(name, runs, grids)
    [row] = run_greedy(models, name, [prompt])
    form = models[GREEDY[name]["model"].removeprefix("tiny_")].config.form
    reply = np.concatenate([prompt[reply_start(prompt, form) :], row.rows])[:, 1:]
    whole = np.concatenate(segments(reply, form.audio_pad))[prefix_frames(prompt, form) :]
    np.testing.assert_array_equal(np.array(row.frames), whole)


def sampled(models, runs):
    plain, effect = runs["plain_a.input_ids"][0], runs["two_segments_a.input_ids"][0]
    cold = greedy(1.2)
    return [
        (Row(1, plain), WARM, TextSampling(), 7),
        (Row(3, effect), WARM, TextSampling(1.1, 0.9, 50), 2**63 + 5),
        (Row(6, plain[5:]), cold, TextSampling(0.0), 0),
    ]


def test_rows_in_one_batch_speak_as_if_alone(models, runs):
    """Different prompts, positions and sampling, in slots with holes between them."""
    runner = DelayRunner(models["a"], 8, 512, deterministic=True)
    together = sampled(models, runs)
    for row, *how in together:
        start(runner, row, *how)
    speak(runner, [row for row, *_ in together], 40)
    for (row, *how), (batched, *_) in zip(sampled(models, runs), together, strict=True):
        alone = DelayRunner(models["a"], 8, 512, deterministic=True)
        start(alone, row, *how)
        speak(alone, [row], 40)
        np.testing.assert_array_equal(row.rows, batched.rows)


def test_a_row_that_joins_later_speaks_as_if_alone(models, runs):
    runner = DelayRunner(models["a"], 8, 512, deterministic=True)
    early, late, alone = (Row(slot, runs["plain_a.input_ids"][0]) for slot in (1, 2, 2))
    start(runner, early, WARM, TextSampling(), 3)
    speak(runner, [early], 9)
    start(runner, late, WARM, TextSampling(), 4)
    late.take(runner.draw([late])[0])
    for _ in range(20):
        live = [row for row in (early, late) if not row.is_over]
        runner.step(live)
        for row, drawn in zip(live, runner.draw(live), strict=True):
            row.take(drawn)
    other = DelayRunner(models["a"], 8, 512, deterministic=True)
    start(other, alone, WARM, TextSampling(), 4)
    speak(other, [alone], len(late.rows))
    np.testing.assert_array_equal(alone.rows, late.rows)


def test_the_seed_decides(models, runs):
    """Upstream draws from one global generator and has no seed."""

    def reply(seed):
        runner = DelayRunner(models["a"], 2, 512, deterministic=True)
        row = Row(1, runs["plain_a.input_ids"][0])
        start(runner, row, WARM, TextSampling(), seed)
        speak(runner, [row], 30)
        return np.array(row.rows)

    one, again, other = reply(1), reply(1), reply(2)
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


def test_a_slot_forgets_its_last_row(models, runs, grids):
    runner = DelayRunner(models["a"], 2, 512, deterministic=False)
    sampling = greedy(1.2), TextSampling(temperature=0.0)
    first = Row(1, grids["ttsd_voice_clone_and_continuation.input_ids"][0])
    start(runner, first, *sampling)
    speak(runner, [first], 17)
    runner.close(1)
    second = Row(1, grids["continuation_clone_a.input_ids"][0])
    start(runner, second, *sampling)
    speak(runner, [second], 30)
    np.testing.assert_array_equal(second.rows, runs["continuation_a_rep1.2.new_rows"][0])


def operations(model, rows, history):
    """Names of the tensor operations of one step and draw."""
    runner = DelayRunner(model, 18, 2304, deterministic=False)
    grid = np.full((history, 9), 1024, np.int64)
    grid[:, 0] = np.arange(history) % 400
    grid[-3:, 0] = (429, 5, 6)
    batch = [Row(slot, grid) for slot in range(1, rows + 1)]
    for row in batch:
        start(runner, row, WARM, TextSampling(), row.slot, piece=256)
    runner.draw(batch)
    with CountOperations() as counted:
        runner.step(batch)
        runner.draw(batch)
    return counted.names


def test_a_tick_issues_the_same_operations_whatever_the_batch_and_the_history(models):
    one = operations(models["a"], rows=1, history=200)
    assert len(one) > 100
    assert operations(models["a"], rows=16, history=200) == one
    assert operations(models["a"], rows=1, history=2000) == one


def test_warm_up_leaves_every_slot_as_it_was(models, runs):
    runner = DelayRunner(models["a"], 3, 512, deterministic=False)
    runner.warm_up(2)
    row = Row(1, runs["plain_a.input_ids"][0])
    start(runner, row, greedy(), TextSampling(temperature=0.0))
    speak(runner, [row], 70)
    np.testing.assert_array_equal(row.rows, runs["plain_a.new_rows"][0])
