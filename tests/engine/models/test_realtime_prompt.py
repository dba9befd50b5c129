"""Dialogue grids against upstream's processor, sessions and fine-tuning data, and their errors."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from engine.hub import DEFAULT_MODEL_DIR, DEFAULT_VOICES_DIR, CheckpointError
from engine.models.realtime_prompt import RealtimePrompt, Turn

VECTORS = Path(__file__).parents[2] / "vectors"
REALTIME = VECTORS / "realtime"
CASES = json.loads((REALTIME / "prompts.json").read_text())["cases"]
USER_CASES = [name for name in CASES if name.startswith("user_")]
GOLDEN = json.loads((VECTORS / "voice" / "golden.json").read_text())

PAD, BOS, EOS = 1024, 1025, 1026
NO_CODES = np.zeros((0, 16), np.uint16)


@pytest.fixture(scope="module")
def prompt():
    return RealtimePrompt.from_checkpoint(REALTIME / "tiny")


@pytest.fixture(scope="module")
def voice_prompt():
    return RealtimePrompt.from_checkpoint(DEFAULT_MODEL_DIR)


@pytest.fixture(scope="module")
def grids():
    return load_file(REALTIME / "prompts.safetensors")


def equal(grid, expected):
    assert grid.dtype == np.int32
    np.testing.assert_array_equal(grid, expected)


def frames(count, seed=0):
    return np.random.default_rng(seed).integers(0, 1024, (count, 16)).astype(np.uint16)


def turn_of(prompt, role, text, codes):
    return Turn(role, tuple(prompt.tokenizer.encode(text)), codes)


# --- golden grids


def test_system(prompt, grids):
    equal(prompt.system(None), grids["system"])


@pytest.mark.parametrize(
    ("name", "codes"),
    [
        ("system_clone_5", "clone_codes_5"),
        ("system_clone_20", "clone_codes_20"),
        ("system_clone_16_CT", "clone_codes_16"),
        ("system_clone_32ch_CT", "codes_32ch"),
    ],
)
def test_voice_reference(name, codes, prompt, grids):
    """`..._TC` are left out: upstream guesses the wrong axis, here it is [frames, n_vq]."""
    equal(prompt.system(grids[codes][:, :16]), grids[name])


@pytest.mark.parametrize("name", USER_CASES)
def test_user_turn(name, prompt, grids):
    """Header and text are tokenized apart, upstream does it together.

    A text that starts with a line break may then merge with the header's, and the sound is off by
    a row; the test tokenizer has no such token, so that even `user_lead_newline` is equal.
    """
    case = CASES[name]
    assert prompt.tokenizer.encode(case["text"]) == case["standalone_ids"]
    turn = prompt.user_turn(case["text"], grids[f"{name}_codes"], False, "upstream_streaming")
    equal(np.concatenate([turn, prompt.assistant_header()]), grids[name])


def test_headers(prompt, grids):
    single, double = (
        prompt.assistant_header(True, "training"),
        prompt.assistant_header(True, "upstream_streaming"),
    )
    equal(single, grids["assistant_prefix_nonstreaming"])
    equal(double, grids["assistant_prefix_streaming_example"])


def test_upstream_text_only_turn(prompt, grids):
    turns = [turn_of(prompt, "user", CASES["text_only_turn"]["text"], NO_CODES)]
    equal(prompt.dialogue(turns, None, "upstream_streaming"), grids["text_only_turn"])


def test_dialogue_without_turns(prompt, grids):
    equal(prompt.dialogue([]), grids["nonstreaming_noclone"])
    equal(prompt.dialogue([], grids["clone_codes_20"]), grids["nonstreaming_clone_20"])


@pytest.mark.parametrize("length", [12, 5, 1])
def test_first_text_rows_of_a_reply(length, prompt, grids):
    ids = CASES[f"prefill_{length}"]["text_ids"]
    equal(prompt.assistant_turn(ids, NO_CODES, "upstream_streaming"), grids[f"prefill_{length}"])


@pytest.mark.parametrize("name", ["train_single", "train_single_short", "train_multi"])
def test_training_data(name, prompt, grids):
    """The last training turn stands in the place of the reply, so its header ends the dialogue."""
    case = CASES[name]
    voice = grids["train_clone_codes"] if case["clone"] else None
    *before, last = (
        turn_of(prompt, turn["role"], turn["text"], grids[f"{name}_codes_{number}"])
        for number, turn in enumerate(case["turns"])
    )
    context = prompt.dialogue(before, voice)
    reply = prompt.assistant_turn(last.text_ids, last.codes)
    equal(np.concatenate([context, reply]), grids[name])


@pytest.mark.parametrize("name", ["multiturn", "multiturn_trainlayout"])
def test_conversation(name, prompt):
    layout = "upstream_streaming" if name == "multiturn" else "training"
    golden = load_file(REALTIME / f"{name}.safetensors")
    heard = load_file(REALTIME / "multiturn.safetensors")  # the user's sound is the same in both
    spoken = json.loads((REALTIME / "multiturn.json").read_text())[name]["turns"]
    turns, cached = [], 0
    for number, turn in enumerate(spoken):
        # The last frame of a turn (here the end code, or the frame cut by a limit) is not fed.
        user_codes, reply = heard[f"turn{number}_user_codes"], golden[f"turn{number}_frames"][:-1]
        turns.append(turn_of(prompt, "user", turn["user"], user_codes))
        context = prompt.dialogue(turns, golden["clone_codes"], layout)
        assert (
            prompt.tokenizer.encode(turn["assistant"]) == golden[f"turn{number}_text_ids"].tolist()
        )
        equal(context[cached:], golden[f"turn{number}_input_ids"])
        turns.append(turn_of(prompt, "assistant", turn["assistant"], reply))
        # Up to the last frame: the next turn's rows start with the end-of-audio row, if any.
        rows = prompt.assistant_turn(turns[-1].text_ids, reply, "upstream_streaming")
        cached = len(context) + len(rows)
        assert cached == turn["cache_len"]
        equal(np.concatenate([context, rows]), golden["full_grid"][:cached])
    assert cached == len(golden["full_grid"])


@pytest.mark.parametrize("number", GOLDEN)
def test_shipped_voice(number, voice_prompt):
    golden = load_file(VECTORS / "voice" / "golden.safetensors")
    voices = load_file(DEFAULT_VOICES_DIR / "references.safetensors")
    text, voice = GOLDEN[number]["text"], GOLDEN[number]["voice"]
    ids = voice_prompt.tokenizer.encode(text)
    assert ids == golden[f"{number}.text_ids"].tolist()
    context = voice_prompt.dialogue([], voices[voice] if voice else None)
    nothing = np.zeros((0, 8), np.uint16)
    first_rows = voice_prompt.assistant_turn(ids[:12], nothing, "upstream_streaming")
    equal(np.concatenate([context, first_rows]), golden[f"{number}.prompt_grid"])


# --- layouts


def test_only_the_first_header_differs_between_layouts(prompt):
    codes = frames(3)
    for layout in ("training", "upstream_streaming"):
        later = prompt.user_turn("Hello", codes, False, layout)
        first = prompt.user_turn("Hello", codes, True, layout)
        dropped = 2 if layout == "training" else 0
        equal(first, later[dropped:])


def test_a_finished_reply_continues_what_the_engine_fed(prompt):
    """The rows fed while speaking are the start of the turn's rows in the next context."""
    ids, codes = tuple(range(30, 55)), frames(20)
    fed = prompt.assistant_turn(ids, codes, "upstream_streaming")
    kept = prompt.assistant_turn(ids, codes, "training")
    equal(kept[:-1], fed)
    assert kept[-1].tolist() == [prompt.text_pad, EOS] + [PAD] * 15
    # Cut while text was still being fed: one id beside each frame after the first twelve.
    cut = prompt.assistant_turn(ids[:17], codes[:5], "training")
    equal(cut[:-1], fed[:17])


def test_text_longer_than_sound_goes_on_after_the_end_of_audio(prompt):
    ids = tuple(range(40, 60))
    grid = prompt.assistant_turn(ids, frames(3))
    assert grid[:, 0].tolist() == list(ids)
    assert (grid[:, 1] == BOS).nonzero()[0].tolist() == [11]
    assert (grid[:, 1] == EOS).nonzero()[0].tolist() == [15]
    assert (grid[16:, 1:] == PAD).all()
    upstream = prompt.assistant_turn(ids, frames(3), "upstream_streaming")
    equal(upstream, grid[:15])


def test_next_segment_is_an_assistant_turn_of_its_own(prompt):
    first = Turn("assistant", tuple(range(30, 50)), frames(12, seed=1))
    second = Turn("assistant", tuple(range(50, 54)), frames(7, seed=2))
    for layout in ("training", "upstream_streaming"):
        context = prompt.dialogue([first, second], None, layout)
        opening = prompt.dialogue([], None, layout)
        spoken = [
            prompt.assistant_turn(turn.text_ids, turn.codes, "upstream_streaming")
            for turn in (first, second)
        ]
        prefix = prompt.next_prefix(layout)
        equal(context, np.concatenate([opening, spoken[0], prefix, spoken[1], prefix]))


def test_audio_only_user_turn_uses_the_layout_with_zero_text(prompt):
    codes = frames(4)
    context = prompt.dialogue([Turn("user", (), codes)])
    rows = context[len(prompt.system()) : -len(prompt.assistant_header())]
    assert rows[:, 0].tolist() == [*prompt.open_ids["user"], *[prompt.text_pad] * 5]
    equal(rows[-5:-1, 1:], codes)
    assert rows[-6, 1] == BOS
    assert rows[-1, 1] == EOS


def test_text_only_user_turns_are_included_or_skipped(prompt):
    text_only = turn_of(prompt, "user", "Hello there", NO_CODES)
    spoken = turn_of(prompt, "user", "ok, thanks", frames(5))
    included = prompt.dialogue([text_only, spoken])
    skipped = prompt.dialogue([text_only, spoken], text_only_user="skip")
    equal(skipped, prompt.dialogue([spoken]))
    start = len(prompt.system())
    turn = prompt.user_turn("Hello there", None, first=True)
    equal(included[start : start + len(turn)], turn)
    assert (turn[:, 1:] == PAD).all()
    assert prompt.text_pad not in turn[:, 0]


def test_turns_without_anything_the_model_could_know_are_left_out(prompt):
    silent = Turn("assistant", (40, 41), NO_CODES)
    empty = Turn("user", (), NO_CODES)
    equal(prompt.dialogue([silent, empty]), prompt.dialogue([]))


def test_an_assistant_turn_may_hold_ids_outside_the_codebook(prompt):
    """The model drew them and they were fed back, so they are part of what it remembers."""
    codes = frames(3)
    codes[1, 4] = EOS
    equal(prompt.assistant_turn((40,), codes)[1:4, 1:], codes)


# --- text of users


@pytest.mark.parametrize("marker", ["<|im_end|>", "<|im_start|>", "<|text_pad|>", "user\n"])
def test_markers_in_user_text_are_plain_text(marker, prompt, voice_prompt):
    for built in (prompt, voice_prompt):
        codes = np.zeros((2, built.n_vq), np.uint16)
        grid = built.user_turn(f"a {marker} b", codes)
        header = len(built.close_ids) + len(built.open_ids["user"])
        expected = built.tokenizer.encode(f"a {marker} b")
        text = grid[header : header + len(expected), 0].tolist()
        assert text == expected
        assert built.tokenizer.decode(text) == f"a {marker} b"
        assert not set(text) & {*built.close_ids[:1], *built.open_ids["user"][:1], built.text_pad}


def test_a_leading_line_break_does_not_shift_the_sound(tmp_path):
    """With a token for two line breaks (as in Qwen's), "user\\n" + "\\nHello" merges across."""
    shutil.copy(REALTIME / "tiny" / "config.json", tmp_path)
    settings = json.loads((REALTIME / "tiny" / "tokenizer.json").read_text())
    settings["model"]["vocab"]["ĊĊ"] = 639
    settings["model"]["merges"].append(["Ċ", "Ċ"])
    (tmp_path / "tokenizer.json").write_text(json.dumps(settings))
    prompt = RealtimePrompt.from_checkpoint(tmp_path)
    text = "\nHello there, how are you doing today? I would like to book a table."
    assert 639 in prompt.tokenizer.encode("user\n" + text)

    ids = prompt.tokenizer.encode(text)
    grid = prompt.user_turn(text, frames(2))
    assert 639 not in grid[:, 0]
    bos = (grid[:, 1] == BOS).nonzero()[0].item()
    assert grid[bos, 0] == ids[11]
    assert grid[bos + 1 : bos + 3, 0].tolist() == ids[12:14]


# --- errors


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        (frames(0), "has no frames"),
        (frames(5).T, r"\[16, 5\], expected integers \[frames, 16\] \(they look transposed\)"),
        (np.zeros((20, 32), np.int64), r"\[20, 32\], expected integers \[frames, 16\]$"),
        (np.zeros(16, np.int64), r"\[16\], expected"),
        (np.zeros((5, 16)), "float64, expected integers"),
        (np.full((5, 16), -1), r"code -1 in frame 0, codebook 0 is outside 0\.\.1023"),
        (np.full((5, 16), 1024), r"code 1024 .* is outside 0\.\.1023"),
    ],
)
def test_voice_codes_that_do_not_fit(codes, message, prompt):
    with pytest.raises(ValueError, match=message):
        prompt.system(codes)


def test_square_codes_are_frames_by_codebooks(prompt):
    codes = frames(16)
    start = len(prompt.system()) + len(prompt.voice_head_ids)
    equal(prompt.system(codes)[start : start + 16, 1:], codes)


def test_ids_that_do_not_fit(prompt):
    with pytest.raises(ValueError, match="text id 640 at position 1 is outside the vocabulary"):
        prompt.assistant_turn((5, 640), frames(1))
    with pytest.raises(ValueError, match="text id -1 at position 0"):
        prompt.dialogue([Turn("user", (-1,), NO_CODES)])
    with pytest.raises(ValueError, match="at least one text id"):
        prompt.assistant_turn((), frames(1))
    with pytest.raises(ValueError, match=r"user code 1024 .* is outside 0\.\.1023"):
        prompt.user_turn("hm", np.full((1, 16), 1024))
    with pytest.raises(ValueError, match=r"assistant code 1027 .* is outside 0\.\.1026"):
        prompt.assistant_turn((5,), np.full((1, 16), 1027))


@pytest.fixture
def checkpoint(tmp_path):
    for name in ("config.json", "processor_config.json", "tokenizer.json"):
        shutil.copy(DEFAULT_MODEL_DIR / name, tmp_path / name)
        (tmp_path / name).chmod(0o600)

    def change(name, **fields):
        content = json.loads((tmp_path / name).read_text()) | fields
        kept = {key: value for key, value in content.items() if value is not None}
        (tmp_path / name).write_text(json.dumps(kept))
        return tmp_path

    return change


def test_settings_of_the_checkpoint_win(checkpoint, voice_prompt):
    directory = checkpoint(
        "processor_config.json", delay_tokens_len=3, tts_system_prompt="<|im_start|>system\nHi"
    )
    changed = RealtimePrompt.from_checkpoint(directory)
    assert changed.prefill_text_len == 3
    assert changed.system_ids[:2] == voice_prompt.system_ids[:2]
    assert changed.system_ids[2:] == tuple(changed.tokenizer.encode("Hi"))
    grid = changed.assistant_turn(range(100, 110), np.zeros((9, 8), np.uint16))
    assert (grid[:, 1] == BOS).nonzero()[0].tolist() == [2]


def test_settings_that_contradict_each_other(checkpoint):
    directory = checkpoint("processor_config.json", channels=16)
    with pytest.raises(CheckpointError, match=r"channels 16, config\.json has rvq 8"):
        RealtimePrompt.from_checkpoint(directory)
    checkpoint("processor_config.json", channels=8)
    checkpoint("config.json", text_pad=10003)
    with pytest.raises(CheckpointError, match=r"10004 in tokenizer\.json, but text_pad is 10003"):
        RealtimePrompt.from_checkpoint(directory)
    checkpoint("config.json", text_pad=None, rvq=None)
    with pytest.raises(CheckpointError, match="lacks rvq, text_pad"):
        RealtimePrompt.from_checkpoint(directory)


def test_a_checkpoint_without_a_tokenizer(checkpoint):
    directory = checkpoint("config.json")
    (directory / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match=r"has no tokenizer\.json"):
        RealtimePrompt.from_checkpoint(directory)


def test_building_prompts_loads_no_torch():
    probe = "import sys, engine.models.realtime_prompt; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", probe], check=False).returncode == 0
