"""The engine speaks a delay-pattern model: frames as their rows come, equal to the offline ones."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from engine import api
from engine.checkpoint import CheckpointError
from engine.codec.codec import load_codec
from engine.engine import Engine
from engine.models.delay_pattern import DelayFormat, prefix_frames, reply_start, segments
from engine.models.delay_prompt import DelayPrompt, Fields
from tests.engine.harness import SHIPPED, PromptHarness, write_random_codec

DELAY = Path(__file__).parents[1] / "vectors" / "delay"
GREEDY = json.loads((DELAY / "greedy.json").read_text())
RUNS = {
    "plain_a": ("greedy", "plain_a"),
    "two_segments_a": ("greedy", "two_segments_a"),
    "continuation_a_rep1.2": ("prompts", "continuation_clone_a"),
}
WARM = api.Sampling(1.7, 0.8, 25, repetition_penalty=1.1, repetition_window=0)


class DelayHarness(PromptHarness):
    """A real engine with the tiny model and a random codec of its codebooks."""

    def __init__(self, codec_dir, **changes):
        super().__init__(DELAY / "tiny_a", codec_dir, **changes)
        self.prompt = DelayPrompt.from_checkpoint(DELAY / "tiny_a")


def greedy(penalty=1.0):
    return api.Sampling(temperature=0.0, repetition_penalty=penalty, repetition_window=0)


def penalty(run):
    return GREEDY[run]["kwargs"].get("audio_repetition_penalty", 1.0)


@pytest.fixture(scope="module")
def codec_dir(tmp_path_factory):
    return write_random_codec(tmp_path_factory.mktemp("delay") / "codec", n_codebooks=8)


@pytest.fixture(scope="module")
def shared(codec_dir):
    return DelayHarness(codec_dir)


@pytest.fixture
def harness(shared):
    yield shared
    shared.engine.parts.warm.clear()
    shared.engine.parts.cache.unpin_all()
    assert not any(shared.leftovers().values())


@pytest.fixture(scope="module")
def vectors():
    return {name: load_file(DELAY / f"{name}.safetensors") for name in ("greedy", "prompts")}


@pytest.fixture(scope="module")
def form():
    return DelayFormat.from_json(json.loads((DELAY / "tiny_a" / "config.json").read_text()))


def prompt_of(run, vectors):
    file, name = RUNS[run]
    return vectors[file][f"{name}.input_ids"][0]


def offline(run, vectors, form):
    """The new frames of a golden run, from its whole grid."""
    prompt = prompt_of(run, vectors)
    rows = np.concatenate(
        [prompt[reply_start(prompt, form) :], vectors["greedy"][f"{run}.new_rows"][0]]
    )
    return np.concatenate(segments(rows[:, 1:], form.audio_pad))[prefix_frames(prompt, form) :]


@pytest.mark.parametrize("run", ["plain_a", "two_segments_a"])
def test_a_reply_equals_the_offline_one(run, harness, vectors, form):
    [log] = harness.finish(harness.speak(prompt_of(run, vectors)))
    np.testing.assert_array_equal(log.codes, offline(run, vectors, form))
    info = harness.engine.parts.info
    assert len(log.pcm) == len(log.codes) * info.samples_per_frame
    assert log.done.reason == "completed"
    assert log.done.counts.frames == len(log.codes)
    assert [event.end_frame for event in log.of(api.Segment)] == [len(log.codes)]


@pytest.mark.parametrize("deterministic", [False, True])
def test_each_stretch_of_sound_is_decoded_by_itself(deterministic, codec_dir, vectors, form):
    """The golden reply has two; the codec's memory of the first would colour the second."""
    codec = load_codec(Path(codec_dir))
    rows = vectors["greedy"]["two_segments_a.new_rows"][0]
    stretches = [torch.from_numpy(frames).T for frames in segments(rows[:, 1:], form.audio_pad)]
    assert [codes.shape[1] for codes in stretches] == [4, 5]
    apart = [codec.decode(codes[:, None])[0].T for codes in stretches]
    joined = codec.decode(torch.cat(stretches, dim=1)[:, None])[0].T
    harness = DelayHarness(codec_dir, deterministic=deterministic)
    [log] = harness.finish(harness.speak(prompt_of("two_segments_a", vectors)))
    np.testing.assert_allclose(log.pcm, torch.cat(apart).numpy(), atol=1e-4)
    assert np.abs(log.pcm - joined.numpy()).max() > 1e-2
    assert not any(harness.leftovers().values())


def test_the_first_frame_leaves_before_the_second_is_complete(harness, vectors, form):
    """The draws up to it: audio_start, then as many rows as the frame has codebooks."""
    row = harness.speak(prompt_of("plain_a", vectors))
    harness.tick(form.n_vq)
    assert row not in harness.rows
    harness.tick()
    assert len(harness.rows[row].codes) == 1
    harness.finish(row)


def test_a_continuation_gives_the_new_frames_only(harness, vectors, form):
    run = "continuation_a_rep1.2"
    prompt = prompt_of(run, vectors)
    prefix = vectors["prompts"]["continuation_clone_a.prefix0"]
    row = harness.speak(
        prompt,
        decoder_codes=prefix.astype(np.uint16),
        sampling=greedy(penalty(run)),
        max_frames=3,
    )
    [log] = harness.finish(row)
    np.testing.assert_array_equal(log.codes, offline(run, vectors, form))


def test_rows_together_speak_as_if_alone(codec_dir, vectors):
    prompts = [prompt_of(run, vectors) for run in RUNS]
    together = DelayHarness(codec_dir, deterministic=True)
    rows = [
        together.speak(prompt, sampling=WARM, text_sampling=None, seed=seed)
        for seed, prompt in enumerate(prompts)
    ]
    batch = together.finish(*rows)
    assert sum(len(log.of(api.Frames)) > 0 for log in batch) >= 2
    for seed, (prompt, log) in enumerate(zip(prompts, batch, strict=True)):
        solo = DelayHarness(codec_dir, deterministic=True)
        [alone] = solo.finish(solo.speak(prompt, sampling=WARM, text_sampling=None, seed=seed))
        assert alone.done.reason == log.done.reason
        if alone.of(api.Frames):
            np.testing.assert_array_equal(alone.codes, log.codes)
            np.testing.assert_array_equal(alone.pcm, log.pcm)


def test_a_known_prompt_is_not_computed_again(harness, vectors, form):
    """All of it but the last block is found: a reply needs the last grid row's hidden state.

    The penalty knows the codes of what was not prefilled all the same.
    """
    run = "continuation_a_rep1.2"
    prompt = prompt_of(run, vectors)
    prompt = np.concatenate(
        [prompt[:4], prompt]
    )  # a multiple of 16 would hide nothing to draw from
    how = {"sampling": greedy(penalty(run)), "max_frames": 3}
    [first] = harness.finish(harness.speak(prompt, **how))
    [again] = harness.finish(harness.speak(prompt, **how))
    assert again.done.counts.reused_grid_rows == (len(prompt) - 1) // 16 * 16
    np.testing.assert_array_equal(first.codes, again.codes)
    whole = prompt[: len(prompt) // 16 * 16]
    harness.finish(harness.speak(whole, max_frames=1))
    [log] = harness.finish(harness.speak(whole, max_frames=1))
    assert log.done.counts.prefill_grid_rows == 16


def test_a_prompt_can_be_warmed(harness, vectors):
    prompt = harness.prompt.generation(Fields(text="the wind is moving", language="English"))
    harness.send(api.Warm("key", harness.engine.parts.info.name, prompt, 60.0))
    harness.tick(4)
    [log] = harness.finish(harness.speak(prompt, max_frames=2))
    assert log.done.counts.reused_grid_rows == (len(prompt) - 1) // 16 * 16


def test_cancelled_in_the_middle(harness, vectors):
    row = harness.speak(prompt_of("plain_a", vectors))
    harness.tick(13)
    harness.send(api.Cancel(row))
    [log] = harness.finish(row)
    assert log.done.reason == "cancelled"


def test_no_longer_than_asked_for(harness, vectors, form):
    [log] = harness.finish(harness.speak(prompt_of("plain_a", vectors), max_frames=5))
    assert log.done.reason == "max_audio"
    np.testing.assert_array_equal(log.codes, offline("plain_a", vectors, form)[:5])


def test_a_slow_listener_is_waited_for(harness, vectors, form):
    row = harness.speak(prompt_of("plain_a", vectors), max_ahead_ms=240)
    harness.tick(60)
    log = harness.rows[row]
    assert len(log.codes) == 3
    assert [event.why for event in log.of(api.Parked)] == ["flow"]
    harness.send(api.Played(row, 10**9, 0))
    harness.finish(row)
    np.testing.assert_array_equal(log.codes, offline("plain_a", vectors, form))


def test_text_that_is_fed_changes_nothing(harness, vectors, form):
    row = harness.speak(prompt_of("plain_a", vectors))
    harness.send(api.Feed(row, (5, 6)), api.Flush(row, np.zeros((0, 9), np.int32)), api.End(row))
    [log] = harness.finish(row)
    np.testing.assert_array_equal(log.codes, offline("plain_a", vectors, form))


@pytest.mark.parametrize(
    ("grid", "problem"),
    [
        (np.zeros((0, 9)), "no assistant header"),
        (np.full((3, 9), 5), "no assistant header"),
        (np.full((3, 17), 5), "a grid has 9 columns"),
        (np.full((3, 9), 1025), "0..447; the grid has 1025..1025"),
    ],
)
def test_prompts_that_are_refused(harness, grid, problem):
    [log] = harness.finish(harness.speak(grid))
    [refused] = log.events
    assert refused.code == "bad_grid"
    assert problem in refused.message


def test_an_unknown_family_is_named(tmp_path, codec_dir):
    shutil.copytree(DELAY / "tiny_b", tmp_path / "model")
    config = json.loads((DELAY / "tiny_b" / "config.json").read_text())
    (tmp_path / "model" / "config.json").write_text(json.dumps(config | {"model_type": "parrot"}))
    with pytest.raises(
        CheckpointError, match="holds a 'parrot'; known model types: moss_tts_delay"
    ):
        Engine(
            dataclasses.replace(SHIPPED, model_dir=str(tmp_path / "model"), codec_dir=codec_dir),
            print,
        )
