"""The delay pattern against golden arrays, and frame by frame against the whole."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from engine.hub import CheckpointError
from engine.models.delay_pattern import (
    DelayFormat,
    Undelay,
    delay,
    prefix_frames,
    prompt_problem,
    reply_start,
    segments,
    undelay,
)
from engine.models.delay_prompt import DelayPrompt

DELAY = Path(__file__).parents[2] / "vectors" / "delay"
CASES = ["n16_t2", "n1_t4", "n32_t7", "n4_t1", "n4_t3", "n8_t5"]
DECODE = json.loads((DELAY / "decode.json").read_text())
GREEDY = json.loads((DELAY / "greedy.json").read_text())
RUNS = [
    (run, row) for run, rows in DECODE["cases"].items() for row in range(len(rows)) if run in GREEDY
]
PROMPTS = {
    "continuation_a": "continuation_clone_a",
    "continuation_a_rep1.2": "continuation_clone_a",
    "ttsd_continuation_a": "ttsd_voice_clone_and_continuation",
    "truncated_a": "plain_a",
}
FRAME_SAMPLES = 1920


@pytest.fixture(scope="module")
def patterns():
    return load_file(DELAY / "delay.safetensors")


@pytest.fixture(scope="module")
def runs():
    return load_file(DELAY / "greedy.safetensors")


@pytest.fixture(scope="module")
def golden_segments():
    return load_file(DELAY / "decode.safetensors")


def config(name):
    return json.loads((DELAY / f"tiny_{name}" / "config.json").read_text())


def form(run):
    return DelayFormat.from_json(config(GREEDY[run]["model"].removeprefix("tiny_")))


def prompt_of(run, row, runs):
    """The prompt of a golden run without its left padding."""
    name = PROMPTS.get(run, run)
    if f"{name}.input_ids" in runs:
        grid, mask = runs[f"{name}.input_ids"], runs.get(f"{name}.attention_mask")
    else:
        grid, mask = load_file(DELAY / "prompts.safetensors")[f"{name}.input_ids"], None
    return grid[row] if mask is None else grid[row][mask[row].astype(bool)]


@pytest.mark.parametrize("name", CASES)
def test_delay_and_back(name, patterns):
    codes = patterns[f"{name}.codes"]
    np.testing.assert_array_equal(delay(codes, 1024), patterns[f"{name}.delayed"])
    np.testing.assert_array_equal(undelay(patterns[f"{name}.delayed"]), codes)
    np.testing.assert_array_equal(patterns[f"{name}.restored"], codes)


def test_undelay_of_any_rows(patterns):
    got = undelay(patterns["raw_n4.grid"])
    np.testing.assert_array_equal(got, patterns["raw_n4.dedelayed"])


@pytest.mark.parametrize("rows", range(5))
def test_too_few_rows_have_no_frames(rows):
    """Upstream crashes below n_vq - 1 rows."""
    assert undelay(np.zeros((rows, 6))).shape == (0, 6)
    assert segments(np.zeros((rows, 6), np.int64), 1024) == []


@pytest.mark.parametrize(("run", "row"), RUNS)
def test_segments(run, row, runs, golden_segments):
    """Upstream raises where there are two or more: it takes where they begin for their lengths."""
    got = segments(runs[f"{run}.rows_{row}"][:, 1:], form(run).audio_pad)
    want = DECODE["cases"][run][row]
    assert [len(frames) for frames in got] == want["segment_frames"]
    for index, frames in enumerate(got):
        np.testing.assert_array_equal(frames, golden_segments[f"{run}.{row}.segment{index}"])
    assert (len(got) > 1) == bool(want["upstream_split_error"])


@pytest.mark.parametrize(("run", "row"), RUNS)
def test_a_continuation_gives_exactly_the_new_frames(run, row, runs):
    """Upstream also cuts the first new one (80 ms): it counts the row of audio_start as a frame."""
    want = DECODE["cases"][run][row]
    prompt = prompt_of(run, row, runs)
    prefix = prefix_frames(prompt, form(run))
    assert want["start_length"] == (prefix + 1 if prefix else 0)
    ours = want["segment_frames"][0] - prefix
    upstream = want["wav_lengths"][0] // FRAME_SAMPLES
    assert ours == upstream + (1 if prefix else 0)
    assert want["wav_first_sample_index"][0] == want["start_length"] * FRAME_SAMPLES


@pytest.mark.parametrize(("run", "row"), RUNS)
def test_frame_by_frame_equals_the_whole(run, row, runs):
    """Each frame comes with the row that completes it, whatever other slots do meanwhile."""
    layout, prompt = form(run), prompt_of(run, row, runs)
    new = runs[f"{run}.new_rows"][row]
    prefix = prompt[reply_start(prompt, layout) :]
    whole = np.concatenate([prefix, new])[:, 1:]
    stream = Undelay(3, layout)
    stream.open(2, prompt)
    noise = np.random.default_rng(5)
    frames = []
    for position, codes in enumerate(new[:, 1:]):
        other = noise.integers(0, layout.audio_pad, layout.n_vq)
        _, frame = stream.push(np.array([0, 2]), np.stack([other, codes]))
        newest = len(prefix) + position - (layout.n_vq - 1)
        complete = undelay(whole)[newest] if newest >= 0 else np.full(layout.n_vq, -1)
        if frame is not None:
            np.testing.assert_array_equal(frame, complete)
            frames.append(frame)
    expected = np.concatenate(segments(whole, layout.audio_pad))
    np.testing.assert_array_equal(frames, expected[prefix_frames(prompt, layout) :])


def test_the_first_frame_leaves_n_vq_rows_after_audio_start(runs):
    layout = form("plain_a")
    stream = Undelay(1, layout)
    stream.open(0, prompt_of("plain_a", 0, runs))
    rows = runs["plain_a.new_rows"][0][:, 1:]
    given = [stream.push(np.array([0]), codes[None])[0] is not None for codes in rows]
    assert given.index(True) == layout.n_vq


@pytest.mark.parametrize(("run", "row"), RUNS)
def test_words_of_a_reply(run, row, runs):
    """Upstream's pattern lacks an escape, so that its text is only the names of the slots."""
    prompt = DelayPrompt.from_checkpoint(DELAY / GREEDY[run]["model"])
    want = DECODE["cases"][run][row]
    text = runs[f"{run}.rows_{row}"][:, 0]
    assert prompt.message(text.tolist()) == want["content_intended"]


def test_absent_ids_are_the_released_ones():
    settings = {"n_vq": 32, "audio_vocab_size": 1024, "language_config": {"vocab_size": 155648}}
    layout = DelayFormat.from_json(settings)
    assert (layout.pad, layout.im_start, layout.im_end) == (151643, 151644, 151645)
    assert (layout.audio_start, layout.gen_slot, layout.delay_slot) == (151652, 151656, 151662)
    assert layout.audio_pad == 1024


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_vq": None}, "config.json lacks n_vq"),
        ({"audio_pad_code": 7}, "audio_pad_code is 7, but the codes are 0..1023"),
        ({"n_vq": 1}, "needs at least 2"),
        ({"im_end_token_id": 448}, "im_end_token_id 448 is outside the vocabulary of 448"),
    ],
)
def test_settings_that_do_not_fit(change, message):
    settings = {**config("a"), **change}
    with pytest.raises(CheckpointError, match=message):
        DelayFormat.from_json({k: v for k, v in settings.items() if v is not None})


@pytest.mark.parametrize(
    ("ids", "problem"),
    [
        ((5, 6), r"no assistant header \(id 429\)"),
        ((429, 5, 6, 431, 434, 435), "ends inside the last frames"),
    ],
)
def test_prompts_that_no_reply_can_follow(ids, problem):
    grid = np.full((len(ids), 9), 1024)
    grid[:, 0] = ids
    assert re.search(problem, prompt_problem(grid, form("plain_a")))


@pytest.mark.parametrize("ids", [(429, 5, 6), (429, 5, 6, 431), (429, 5, 6, 431, 434)])
def test_prompts_that_a_reply_can_follow(ids):
    grid = np.full((len(ids), 9), 1024)
    grid[:, 0] = ids
    assert prompt_problem(grid, form("plain_a")) is None
