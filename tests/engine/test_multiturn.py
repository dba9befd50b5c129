"""Three turns of a dialogue through the engine equal upstream's own session, frame by frame."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from engine import api
from engine.models.realtime_prompt import Turn
from tests.engine.harness import SHIPPED, Harness, write_random_codec

pytestmark = pytest.mark.slow

REALTIME = Path(__file__).parents[1] / "vectors" / "realtime"
CONVERSATIONS = json.loads((REALTIME / "multiturn.json").read_text())
TURNS = CONVERSATIONS["multiturn"]["turns"]
STREAMING = json.loads((REALTIME / "streaming.json").read_text())
# Runs that feed ids; the others record how upstream cuts text wrongly.
ID_FEEDS = ("tokens_all", "tokens_by_1", "tokens_by_5", "delta1_hold0", "zh_no_punct_tokens")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """The tiny golden model, with a codec of 16 codebooks and random weights."""
    codec_dir = write_random_codec(tmp_path_factory.mktemp("codec"))
    model_dir = str(REALTIME / "tiny")
    return Harness(dataclasses.replace(SHIPPED, model_dir=model_dir, codec_dir=codec_dir))


@pytest.fixture(scope="module")
def golden():
    return load_file(REALTIME / "multiturn.safetensors")


def converse(harness, golden, *, change=None):
    """Speak all turns; returns the frames of each. `change` edits turn 0's user codes."""
    no_codes = np.zeros((0, 16), np.uint16)
    turns, spoken = [], []
    for number, turn in enumerate(TURNS):
        user_codes = golden[f"turn{number}_user_codes"].astype(np.uint16)
        if change is not None and number == 0:
            user_codes = change(user_codes.copy())
        encode = harness.prompt.tokenizer.encode
        turns.append(Turn("user", tuple(encode(turn["user"])), user_codes))
        grid = harness.prompt.dialogue(turns, golden["clone_codes"], "upstream_streaming")
        row = harness.open(turn["assistant"], grid=grid, decoder_codes=no_codes, generated=no_codes)
        [log] = harness.finish(row)
        [segment] = log.of(api.Segment)
        ids = tuple(encode(turn["assistant"])[: segment.text_ids_consumed])
        turns.append(Turn("assistant", ids, log.codes))
        spoken.append(log)
    return spoken


def test_three_turns_equal_the_golden_conversation(tiny, golden):
    for number, log in enumerate(converse(tiny, golden)):
        want = golden[f"turn{number}_frames"]
        assert log.done.reason == "completed"
        np.testing.assert_array_equal(log.codes, want[:-1])
        frames = log.of(api.Frames)
        valid = np.concatenate([event.valid for event in frames])
        assert len(log.pcm) == 1920 * valid.sum()


def test_a_code_of_turn_0_changes_turn_2(tiny, golden):
    def change(codes):
        codes[0, 0] = (codes[0, 0] + 1) % 1024
        return codes

    usual, changed = converse(tiny, golden), converse(tiny, golden, change=change)
    assert not np.array_equal(usual[2].codes, changed[2].codes)


def test_each_turn_reuses_what_the_earlier_ones_computed(tiny, golden):
    for log in converse(tiny, golden)[1:]:
        counts = log.done.counts
        assert counts.reused_grid_rows > 10 * counts.prefill_grid_rows / 4


def test_three_turns_in_the_training_layout(tiny, golden):
    """Upstream's own modules on training-layout grids, 20 frames a turn.

    No turn reaches its end, so the last frame of each was never fed.
    """
    frames = load_file(REALTIME / "multiturn_trainlayout.safetensors")
    no_codes = np.zeros((0, 16), np.uint16)
    turns: list[Turn] = []
    encode = tiny.prompt.tokenizer.encode
    for number, turn in enumerate(CONVERSATIONS["multiturn_trainlayout"]["turns"]):
        user_codes = golden[f"turn{number}_user_codes"].astype(np.uint16)
        turns.append(Turn("user", tuple(encode(turn["user"])), user_codes))
        grid = tiny.prompt.dialogue(turns, golden["clone_codes"], "training")
        row = tiny.open(
            turn["assistant"],
            grid=grid,
            decoder_codes=no_codes,
            generated=no_codes,
            max_frames=20,
        )
        [log] = tiny.finish(row)
        np.testing.assert_array_equal(log.codes, frames[f"turn{number}_frames"])
        turns.append(Turn("assistant", tuple(encode(turn["assistant"])), log.codes[:-1]))


@pytest.mark.parametrize("name", ID_FEEDS)
def test_ids_fed_in_any_pieces_give_upstreams_frames(tiny, golden, name):
    run = STREAMING["runs"][name]
    no_codes = np.zeros((0, 16), np.uint16)
    user_codes = golden["turn0_user_codes"].astype(np.uint16)
    user = Turn("user", tuple(tiny.prompt.tokenizer.encode(STREAMING["user_text"])), user_codes)
    row = tiny.open(
        grid=tiny.prompt.dialogue([user], golden["clone_codes"], "upstream_streaming"),
        decoder_codes=no_codes,
        generated=no_codes,
        max_frames=STREAMING["frame_cap"],
    )
    for _, ids in run["feed"]:
        tiny.send(api.Feed(row, tuple(ids)))
        tiny.tick()
    tiny.send(api.End(row))
    [log] = tiny.finish(row)
    want = load_file(REALTIME / "streaming.safetensors")[f"{name}_frames"]
    np.testing.assert_array_equal(log.codes, want[want[:, 0] != 1026])
