"""Training examples against the fine-tuning data of the released code."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from engine.models.realtime_prompt import RealtimePrompt, Turn
from engine.train.packing import IGNORE, Example, batches, dialogue_example, pack

REALTIME = Path(__file__).parents[2] / "vectors" / "realtime"
CASES = json.loads((REALTIME / "prompts.json").read_text())["cases"]


@pytest.fixture(scope="module")
def prompt():
    return RealtimePrompt.from_checkpoint(REALTIME / "tiny")


@pytest.fixture(scope="module")
def grids():
    return load_file(REALTIME / "prompts.safetensors")


def turns_of(prompt, grids, name):
    return [
        Turn(turn["role"], tuple(prompt.tokenizer.encode(turn["text"])), grids[f"{name}_codes_{i}"])
        for i, turn in enumerate(CASES[name]["turns"])
    ]


@pytest.mark.parametrize("name", ["train_single", "train_single_short", "train_multi"])
def test_grid_and_labels_of_the_training_data(prompt, grids, name):
    voice = grids["train_clone_codes"] if CASES[name]["clone"] else None
    example = dialogue_example(prompt, turns_of(prompt, grids, name), voice)
    np.testing.assert_array_equal(example.grid, grids[name])
    # The file labels each row with its own codes; an example has them on the row before.
    np.testing.assert_array_equal(example.labels[:-1], grids[f"{name}_labels"][1:, 1:])
    assert (example.labels[-1] == IGNORE).all()


def test_what_follows_the_last_reply_is_dropped(prompt, grids):
    turns = turns_of(prompt, grids, "train_multi")
    user = next(turn for turn in turns if turn.role == "user")
    longer = dialogue_example(prompt, [*turns, user])
    np.testing.assert_array_equal(longer.grid, dialogue_example(prompt, turns).grid)


def test_a_dialogue_without_a_spoken_reply_is_refused(prompt, grids):
    turns = turns_of(prompt, grids, "train_multi")
    with pytest.raises(ValueError, match="no assistant turn with sound"):
        dialogue_example(prompt, [turn for turn in turns if turn.role == "user"])


def example_of(rows):
    return Example(np.full((rows, 3), rows, np.int32), np.full((rows, 2), IGNORE, np.int32))


def test_batches_fill_up_in_order():
    made = list(batches(map(example_of, [3, 4, 4, 1, 12, 2]), rows=8))
    assert [batch.lengths for batch in made] == [(3, 4), (4, 1), (12,), (2,)]
    assert [len(batch.grid) for batch in made] == [7, 5, 12, 2]


def test_a_batch_is_its_examples():
    batch = pack([example_of(2), example_of(3)])
    assert batch.grid[:, 0].tolist() == [2, 2, 3, 3, 3]
    assert batch.labels.shape == (5, 2)
