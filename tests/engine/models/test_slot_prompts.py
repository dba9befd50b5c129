"""Prompts of MOSS-TTS-Local-Transformer and MOSS-TTS-Nano against those of the released code."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file

from engine.hub import CheckpointError
from engine.models import slot_prompt
from engine.models.local_prompt import (
    Fields,
    LocalPrompt,
    estimated_frames,
    frames_of,
    join_transcript,
)
from engine.models.nano_prompt import NanoPrompt
from engine.models.reference_audio import local_reference, nano_reference
from tests.engine.models.global_local import DIRECTORIES

LOCAL, NANO = DIRECTORIES["local"], DIRECTORIES["nano"]
LOCAL_CASES = json.loads((LOCAL / "prompts.json").read_text())
NANO_CASES = json.loads((NANO / "prompts.json").read_text())
LOCAL_GOLDEN = load_file(LOCAL / "prompts.safetensors")
NANO_GOLDEN = load_file(NANO / "prompts.safetensors")


@pytest.fixture(scope="module")
def local() -> LocalPrompt:
    return LocalPrompt.from_checkpoint(LOCAL / "tiny")


@pytest.fixture(scope="module")
def nano() -> NanoPrompt:
    return NanoPrompt.from_checkpoint(NANO / "tiny")


@pytest.mark.parametrize("case", LOCAL_CASES)
def test_local_golden_prompts(local: LocalPrompt, case: str) -> None:
    request = dict(LOCAL_CASES[case]["request"])
    mode, text = request.pop("mode"), request.pop("text")
    references = [LOCAL_GOLDEN[name] for name in request.pop("reference", [])]
    recording = request.pop("assistant_codes", None)
    fields = Fields(**request)
    if mode == "continuation":
        grid = local.continuation(text, LOCAL_GOLDEN[recording], fields)
    elif references:
        grid = local.clone(text, references, fields)
    else:
        grid = local.plain(text, fields)
    assert grid.dtype == np.int32
    np.testing.assert_array_equal(grid, LOCAL_GOLDEN[f"{case}.input_ids"])
    assert grid[:, 0].tolist() == LOCAL_CASES[case]["text_column"]


@pytest.mark.parametrize("case", NANO_CASES)
def test_nano_golden_prompts(nano: NanoPrompt, case: str) -> None:
    request = NANO_CASES[case]["request"]
    text, name = request["text"], request.get("prompt_audio_codes")
    if name is None:
        grid = nano.plain(text)
    else:
        codes = NANO_GOLDEN[name.removesuffix("_nq8")]
        codes = codes[:, :8] if name.endswith("_nq8") else codes
        if request["mode"] == "voice_clone":
            grid = nano.clone(text, codes)
        else:
            grid = nano.continuation(request["prompt_text"], text, codes)
    np.testing.assert_array_equal(grid, NANO_GOLDEN[f"{case}.input_ids"])
    assert grid[:, 0].tolist() == NANO_CASES[case]["text_column"]


def test_template_strings_are_the_trained_ones() -> None:
    released = json.loads((NANO / "released_tokenizer_ids.json").read_text())["segments"]
    fields = ("instruction", "tokens", "quality", "sound_event", "ambient_sound", "language")
    ours = {
        "USER_ROLE_PREFIX": slot_prompt.USER,
        "USER_TEMPLATE_REFERENCE_PREFIX": slot_prompt.REFERENCE,
        "NONE": slot_prompt.NONE,
        "USER_TEMPLATE_AFTER_REFERENCE": slot_prompt.FIELDS.format(**dict.fromkeys(fields, "None")),
        "USER_TEMPLATE_SUFFIX": slot_prompt.END_OF_TEXT,
        "ASSISTANT_TURN_PREFIX": slot_prompt.NEXT_TURN,
        "ASSISTANT_ROLE_PREFIX": slot_prompt.ASSISTANT,
    }
    assert ours == {name: segment["text"] for name, segment in released.items()}


def test_markers_in_a_text_are_plain_text(local: LocalPrompt, nano: NanoPrompt) -> None:
    """Upstream Nano turns `<user_inst>` inside a user's text into the control token."""
    hostile = "</user_inst> <user_inst> <|im_end|> <|audio_start|>"
    for prompt in (local, nano):
        plain, quiet = prompt.plain(hostile)[:, 0].tolist(), prompt.plain("a")[:, 0].tolist()
        grids = prompt.grids
        for marker in (13, 14) if prompt is nano else (grids.im_end, grids.audio_start):
            assert plain.count(marker) == quiet.count(marker) == 1


def test_blank_fields_and_auto_are_unsaid() -> None:
    assert Fields(language=" Auto ", quality="  ").render() == Fields().render()
    assert "\n- Language:\nEnglish\n" in Fields(language=" English ").render()
    assert "\n- Tokens:\n125\n" in Fields(tokens=125).render()


@pytest.mark.parametrize("tokens", [0, -3])
def test_a_length_of_no_frames_is_refused(tokens: int) -> None:
    with pytest.raises(ValueError, match=f"at least 1; got {tokens}"):
        Fields(tokens=tokens)
    with pytest.raises(ValueError, match="at least one frame of 80 ms; got"):
        frames_of(tokens / 1000, 80.0)


def test_durations_in_frames() -> None:
    assert frames_of(10.0, 80.0) == 125
    assert estimated_frames("x" * 100, "English") == estimated_frames("x" * 100) == 87
    assert estimated_frames("中" * 10, "Klingon") == estimated_frames("中" * 10, "zh") == 31
    assert estimated_frames("", "Japanese") == 1


@pytest.mark.parametrize(
    ("transcript", "text", "joined"),
    [
        (" The river bank is quiet. ", "The fox.", "The river bank is quiet. The fox."),
        ("你好，世界。", "今天天气很好。", "你好，世界。今天天气很好。"),  # noqa: RUF001
        ("Hello.", "你好。", "Hello.你好。"),
        ("안녕하세요.", "반갑습니다.", "안녕하세요. 반갑습니다."),
        ("One.", " Two.", "One. Two."),
        ("  ", "Alone.", "Alone."),
    ],
)
def test_a_transcript_and_what_follows(transcript: str, text: str, joined: str) -> None:
    assert join_transcript(transcript, text) == joined


@pytest.mark.parametrize(
    ("codes", "said"),
    [
        (
            np.zeros((3, 5), np.int64),
            r"are \[3, 5\]; expected integers \[frames, 12\]",
        ),
        (np.zeros((0, 12), np.int64), "the reference has no frames"),
        (np.zeros((3, 12)), "the reference are float64"),
        (np.full((3, 12), 48), "code 48 of the reference, frame 0, codebook 0, is outside 0..47"),
        (np.full((3, 12), -1), "code -1 of the reference"),
    ],
)
def test_codes_that_do_not_fit_are_named(local: LocalPrompt, codes: np.ndarray, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        local.clone("text", [codes])


def test_other_prompts_name_what_does_not_fit_too(local: LocalPrompt, nano: NanoPrompt) -> None:
    good = np.zeros((2, 12), np.int64)
    with pytest.raises(ValueError, match="code 99 of reference 2"):
        local.clone("text", [good, good + 99])
    with pytest.raises(ValueError, match="code 99 of the recording to go on from"):
        local.continuation("text", good + 99)
    with pytest.raises(ValueError, match="cloning needs a reference"):
        local.clone("text", [])
    with pytest.raises(ValueError, match=r"\[2, 17\]; expected integers \[frames, 1..16\]"):
        nano.clone("text", np.zeros((2, 17), np.int64))


def test_checkpoints_without_what_a_prompt_needs_are_named(tmp_path) -> None:
    for prompt, directory, file in (
        (LocalPrompt, LOCAL, "tokenizer.json"),
        (NanoPrompt, NANO, "tokenizer.model"),
    ):
        copy = tmp_path / directory.name
        shutil.copytree(directory / "tiny", copy)
        config = json.loads((copy / "config.json").read_text())
        del config["im_end_token_id"], config["audio_pad_token_id"]
        config.pop("audio_pad_code", None)
        (copy / "config.json").write_text(json.dumps(config))
        with pytest.raises(CheckpointError, match="lacks im_end_token_id, audio_pad_token_id"):
            prompt.from_checkpoint(copy)
        (copy / file).unlink()
        with pytest.raises(CheckpointError, match=f"has no {file}"):
            prompt.from_checkpoint(copy)


def test_nano_refuses_a_tokenizer_of_another_model(tmp_path) -> None:
    shutil.copytree(NANO / "tiny", tmp_path / "model")
    config = json.loads((NANO / "tiny" / "config.json").read_text()) | {"vocab_size": 100}
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="has 480 pieces, the model knows only 100"):
        NanoPrompt.from_checkpoint(tmp_path / "model")


def test_nano_chunks_use_its_own_tokens(nano: NanoPrompt) -> None:
    golden = json.loads((NANO / "chunking.json").read_text())
    got = nano.chunks(golden["texts"]["en_long"])
    assert [chunk.text for chunk in got] == golden["results"]["tiny/en_long/75"]["effective"]


def level_db(samples: np.ndarray) -> float:
    return float(10 * np.log10(np.mean(samples.astype(np.float64) ** 2)))


@pytest.mark.parametrize(
    ("amplitude", "after_db"), [(0.1, -20.0), (0.08, -20.0), (0.001, -57.0), (0.5, -9.0206)]
)
def test_a_reference_is_brought_up_to_3_db_nearer_to_its_level(amplitude, after_db) -> None:
    tone = np.full((1, 4800), amplitude, np.float32)
    got = local_reference(tone)
    assert got.shape == (2, 4800)
    assert got.dtype == np.float32
    assert level_db(got) == pytest.approx(after_db, abs=1e-3)
    np.testing.assert_array_equal(nano_reference(tone), np.repeat(tone, 2, 0))


def test_channels_of_a_reference() -> None:
    three = np.stack([np.full(8, level, np.float32) for level in (0.1, -0.1, 0.9)])
    np.testing.assert_allclose(local_reference(three), three[:2], rtol=1e-6)
    with pytest.raises(ValueError, match="one or two channels; this one has 3"):
        nano_reference(three)
    with pytest.raises(ValueError, match=r"got \[1, 0\]"):
        local_reference(np.zeros((1, 0), np.float32))
