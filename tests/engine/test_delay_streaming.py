"""Delay-pattern replies stream: each frame leaves with the row that completes it, at any split."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from engine.codec.codec import load_codec
from engine.models.delay_pattern import DelayFormat, prefix_frames, reply_start, segments
from engine.models.variants import VARIANTS
from tests.engine.harness import PromptHarness, write_random_codec

DELAY = Path(__file__).parents[1] / "vectors" / "delay"
RUNS = ("plain_a", "two_segments_a", "plain_b")
CONTINUED = "continuation_a"


class Run:
    """A golden run: its prompt, the rows that the model draws, and what those hold."""

    def __init__(self, name: str) -> None:
        golden = load_file(DELAY / "greedy.safetensors")
        about = json.loads((DELAY / "greedy.json").read_text())[name]
        self.model_dir = DELAY / about["model"]
        self.form = DelayFormat.from_json(json.loads((self.model_dir / "config.json").read_text()))
        self.rows = golden[f"{name}.new_rows"][0]
        if name == CONTINUED:
            prompts = load_file(DELAY / "prompts.safetensors")
            self.prompt = prompts["continuation_clone_a.input_ids"][0]
            self.earlier = prompts["continuation_clone_a.prefix0"].astype(np.uint16)
        else:
            self.prompt = golden[f"{name}.input_ids"][0]
            self.earlier = np.zeros((0, self.form.n_vq), np.uint16)

    def stretches(self, drawn: int | None = None) -> list[np.ndarray]:
        """Frames of each stretch of sound in the reply with its first `drawn` rows (None: all)."""
        before = self.prompt[reply_start(self.prompt, self.form) :]
        rows = np.concatenate([before, self.rows[:drawn]])
        return segments(rows[:, 1:], self.form.audio_pad)

    def frames(self, drawn: int | None = None) -> np.ndarray:
        """The new ones, undelayed offline."""
        nothing = np.zeros((0, self.form.n_vq), np.int64)
        joined = np.concatenate([nothing, *self.stretches(drawn)])
        return joined[prefix_frames(self.prompt, self.form) :]


@pytest.fixture(scope="module")
def codec_dirs(tmp_path_factory) -> dict[int, str]:
    root = tmp_path_factory.mktemp("codecs")
    return {n: write_random_codec(root / str(n), n_codebooks=n) for n in (8, 32)}


@pytest.mark.parametrize("name", RUNS)
def test_at_any_time_what_has_left_is_what_the_rows_so_far_hold(name, codec_dirs):
    run = Run(name)
    harness = PromptHarness(
        run.model_dir, codec_dirs[run.form.n_vq], chunk_ramp_frames=(1,), max_grid_rows=512
    )
    row = harness.speak(run.prompt)
    first = None
    for drawn in range(1, len(run.rows)):
        harness.tick()
        expected = run.frames(drawn)
        if not len(expected):
            assert row not in harness.rows
            continue
        np.testing.assert_array_equal(harness.rows[row].codes, expected)
        assert len(harness.rows[row].pcm) == len(expected) * 1920
        first = first or drawn
    assert first == 1 + run.form.n_vq  # audio_start, then a row for each codebook
    [log] = harness.finish(row)
    np.testing.assert_array_equal(log.codes, run.frames())


@pytest.mark.parametrize("ramp", [(1,), (1, 4, 15), (3, 2), (50,)])
@pytest.mark.parametrize("name", ["two_segments_a", CONTINUED])
def test_the_sound_is_that_of_the_offline_frames_however_it_is_cut(name, ramp, codec_dirs):
    """Each stretch decoded whole; what goes on from a recording, after its own frames.

    The model draws the last codes of the recording's last frames again; those are not heard.
    """
    run = Run(name)
    codec_dir = codec_dirs[run.form.n_vq]
    harness = PromptHarness(
        run.model_dir, codec_dir, chunk_ramp_frames=ramp, deterministic=True, max_grid_rows=512
    )
    frames = run.frames()
    [log] = harness.finish(
        harness.speak(run.prompt, decoder_codes=run.earlier, max_frames=len(frames))
    )
    np.testing.assert_array_equal(log.codes, frames)
    codec = load_codec(Path(codec_dir))
    first, *others = run.stretches()
    first = np.concatenate([run.earlier.astype(np.int64), first[len(run.earlier) :]])
    sounds = [
        codec.decode(torch.from_numpy(codes).T[:, None])[0].T.numpy() for codes in (first, *others)
    ]
    new = np.concatenate(sounds)[1920 * len(run.earlier) :]
    np.testing.assert_allclose(log.pcm, new, rtol=0, atol=1e-4)


@pytest.mark.slow
def test_a_batch_of_sixteen_speaks_as_if_each_were_alone(codec_dirs):
    """Bit for bit, seed by seed; penalty history and steps are the row's own."""
    prompts = [Run(name).prompt for name in ("plain_a", "two_segments_a", CONTINUED)]
    names = ("tts", "ttsd", "sound_effect", "voice_generator")
    requests = [
        {
            "grid": prompts[number % 3],
            "seed": 11 * number,
            "sampling": VARIANTS[names[number % 4]].sampling,
            "text_sampling": VARIANTS[names[number % 4]].text_sampling,
            "max_frames": 2 + number % 3,
        }
        for number in range(16)
    ]
    harness = PromptHarness(
        *(DELAY / "tiny_a", codec_dirs[8]),
        **{"deterministic": True, "max_rows": 16, "max_queued_rows": 16, "codec_slots": 16},
        max_grid_rows=160,
    )
    batch = harness.finish(*[harness.speak(**request) for request in requests])
    speaking = [number for number, log in enumerate(batch) if log.done.counts.frames]
    assert len(speaking) >= 8
    for number in speaking:
        [alone] = harness.finish(harness.speak(**requests[number]))
        assert alone.done.reason == batch[number].done.reason
        np.testing.assert_array_equal(alone.codes, batch[number].codes)
        np.testing.assert_array_equal(alone.pcm, batch[number].pcm)
    assert not any(harness.leftovers().values())
