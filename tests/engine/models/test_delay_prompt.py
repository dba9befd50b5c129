"""Prompts of the delay-pattern models against upstream's processors, and their errors."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from engine.hub import CheckpointError
from engine.models.delay_prompt import DelayPrompt, Fields, duration_tokens

DELAY = Path(__file__).parents[2] / "vectors" / "delay"
CASES = json.loads((DELAY / "prompts.json").read_text())["cases"]
BUILT_BELOW = {"multi_turn", "batch2"}


@pytest.fixture(scope="module")
def grids():
    return load_file(DELAY / "prompts.safetensors")


@pytest.fixture(scope="module")
def prompt():
    return DelayPrompt.from_checkpoint(DELAY / "tiny_a")


@pytest.fixture(scope="module")
def ttsd():
    return DelayPrompt.from_checkpoint(DELAY / "tiny_a", "ttsd")


def equal(grid, expected):
    assert grid.dtype == np.int32
    np.testing.assert_array_equal(grid, expected)


def codes(frames, n_vq=8, seed=0):
    return np.random.default_rng(seed).integers(0, 1024, (frames, n_vq))


@pytest.mark.parametrize("name", [name for name in CASES if name not in BUILT_BELOW])
def test_golden_prompt(name, grids):
    case = CASES[name]
    prompt = DelayPrompt.from_checkpoint(DELAY / case["model"], case["template"])
    given = dict(case["fields"])

    def clip(key):
        return None if key is None else grids[f"{name}.{key}"]

    sounds = [clip(key) for key in given.pop("assistant", [])]
    content = given.pop("assistant_content", "<|audio|>").split("<|audio|>")
    if "reference" in given:
        given["references"] = [clip(key) for key in given.pop("reference")]
    if name == "tts_zh_normalized":
        given["text"] = case["rendered"][0].split("- Text:\n")[1].split("\n</user_inst>")[0]
    fields = Fields(**given)
    if case["mode"] == "generation":
        grid = prompt.generation(fields)
    elif case["mode"] == "continuation":
        grid = prompt.continuation(fields, sounds[0])
    else:
        between = [part for pair in zip(sounds, content[1:], strict=True) for part in pair]
        grid = np.concatenate([prompt.user_turn(fields), prompt.assistant_turn(between)])
    equal(grid, grids[f"{name}.input_ids"][0])


def test_a_later_turn(prompt, grids):
    grid = np.concatenate(
        [
            prompt.user_turn(Fields(text="A short line.")),
            prompt.assistant_turn([grids["multi_turn.a0"]]),
            prompt.generation(Fields(text="the wind.")),
        ]
    )
    equal(grid, grids["multi_turn.input_ids"][0])


def test_prompts_of_a_padded_batch(prompt, grids):
    fields = [
        Fields(text="A short line of speech.", language="English"),
        Fields(ambient_sound="the rain is falling on the roof", tokens=12),
    ]
    mask = grids["batch2.attention_mask"].astype(bool)
    for row, given in enumerate(fields):
        equal(prompt.generation(given), grids["batch2.input_ids"][row][mask[row]])


def test_a_stretch_without_frames(prompt):
    grid = prompt.assistant_turn([np.zeros((0, 8), np.int64)])
    form = prompt.form
    start = list(grid[:, 0]).index(form.audio_start)
    assert grid[start + 1, 0] == form.audio_end


@pytest.mark.parametrize("marker", ["<|audio|>", "<|audio_start|>", "<|im_end|>", "{language}"])
def test_markers_in_a_field_are_plain_text(marker, prompt):
    """Upstream refuses some of them, obeys others, and fills a field's braces in again."""
    plain = prompt.generation(Fields(text="x", references=[codes(3)]))
    marked = prompt.generation(Fields(text=f"x{marker}", references=[codes(3)], language="French"))
    for token in (prompt.form.im_start, prompt.form.im_end, prompt.form.audio_start):
        assert (marked[:, 0] == token).sum() == (plain[:, 0] == token).sum()
    said = prompt.tokenizer.decode([i for i in marked[:, 0].tolist() if i < prompt.form.pad])
    assert f"- Text:\nx{marker}\n" in said


@pytest.mark.parametrize(
    ("clip", "message"),
    [
        (codes(3, 7), r"reference 2 codes are \[3, 7\], expected integers \[frames, 8\]"),
        (codes(3, 12), r"reference 2 codes are \[3, 12\]"),
        (codes(3)[0], r"reference 2 codes are \[8\]"),
        (codes(3).astype(float), "reference 2 codes are float64"),
        (codes(3) * 0 + 1024, r"code 1024 in frame 0, codebook 0 is outside 0\.\.1023"),
        (codes(3) * 0 - 1, "code -1 in frame 0"),
    ],
)
def test_a_clip_that_does_not_fit(prompt, clip, message):
    with pytest.raises(ValueError, match=message):
        prompt.generation(Fields(text="x", references=[codes(2), clip]))


def test_nothing_to_continue(prompt):
    with pytest.raises(ValueError, match="has no frames"):
        prompt.continuation(Fields(text="x"), codes(0))


def test_dialogue_form_takes_deeper_codes_and_no_length(ttsd):
    deep = codes(3, 12)
    equal(
        ttsd.generation(Fields(text="[S1]x", references=[deep], tokens=9)),
        ttsd.generation(Fields(text="[S1]x", references=[deep[:, :8]])),
    )


@pytest.mark.parametrize(("duration_s", "tokens"), [(1.0, 12), (0.01, 1), (8, 100), (0.96, 12)])
def test_duration_in_tokens(duration_s, tokens):
    assert duration_tokens(duration_s, 80.0) == tokens


@pytest.mark.parametrize("duration_s", [0, -1.0, float("nan")])
def test_no_such_duration(duration_s):
    with pytest.raises(ValueError, match="must be positive"):
        duration_tokens(duration_s, 80.0)


def test_checkpoint_without_a_tokenizer(tmp_path):
    (tmp_path / "config.json").write_text((DELAY / "tiny_a" / "config.json").read_text())
    with pytest.raises(CheckpointError, match=r"no tokenizer\.json"):
        DelayPrompt.from_checkpoint(tmp_path)
