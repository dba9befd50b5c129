"""From requests to prompts: those of the released pipelines, and what the engine needs beside."""

# ruff: noqa: RUF001  (full-width punctuation is what the golden prompts have)

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from engine.hub import DEFAULT_MODEL_DIR
from engine.models.capabilities import FIELDS, LANGUAGES, Capabilities
from engine.models.delay_pattern import prefix_frames
from engine.models.speech_models import load_speech_model
from engine.models.utterances import PastTurn, Reference, SpeechRequest
from engine.models.variants import VARIANTS

VECTORS = Path(__file__).parents[2] / "vectors"
DELAY = VECTORS / "delay"
DELAY_GRIDS = load_file(DELAY / "prompts.safetensors")
LOCAL = VECTORS / "local_nano" / "local_v15"
NANO = VECTORS / "local_nano" / "nano"
DIRECTORIES = {
    "realtime": DEFAULT_MODEL_DIR,
    "local": LOCAL / "tiny",
    "nano": NANO / "tiny",
}
LINE = "A short line of speech."
FRAME_MS = 80.0


def model(variant):
    return load_speech_model(DIRECTORIES.get(variant, DELAY / "tiny_a"), variant)


def one(variant, **request):
    [utterance] = model(variant).utterances(SpeechRequest(frame_ms=FRAME_MS, **request))
    return utterance


def clip(name, transcript=""):
    return Reference(DELAY_GRIDS[name].astype(np.uint16), transcript)


DELAY_REQUESTS = {
    "tts_plain_a": ("tts", {"text": LINE}),
    "tts_clone_a": ("tts", {"text": LINE, "references": {1: clip("tts_clone_a.ref0")}}),
    "continuation_clone_a": (
        "tts",
        {
            "text": LINE,
            "language": "English",
            "references": {1: clip("continuation_clone_a.prefix0", "the rain is falling.")},
        },
    ),
    "tts_language_tokens": ("tts", {"text": LINE, "language": "English", "duration_s": 2.96}),
    "tts_pause_marker": ("tts", {"text": "A short line[pause 1.5s]of speech."}),
    "tts_zh_normalized": ("tts", {"text": "【公告】今天 天气——很好！！！\n第二行..."}),
    "voice_generator": (
        "voice_generator",
        {"text": LINE, "instructions": "A calm, deep voice."},
    ),
    "sound_effect": (
        "sound_effect",
        {"text": "the rain is falling on the roof", "duration_s": 4.96},
    ),
    "ttsd_generation": ("ttsd", {"text": "[S1]A short line.[S2]Yes."}),
    "ttsd_voice_clone": (
        "ttsd",
        {
            "text": "[S1]A short line.[S2]Yes.",
            "references": {n: clip(f"ttsd_voice_clone.ref{n - 1}") for n in (1, 2)},
        },
    ),
    "ttsd_absent_speaker": (
        "ttsd",
        {
            "text": "[S1]A.[S2]B.[S3]C.",
            "references": {n: clip(f"ttsd_absent_speaker.ref{n - 1}") for n in (1, 3)},
        },
    ),
}


@pytest.mark.parametrize("case", DELAY_REQUESTS)
def test_golden_prompts_of_the_delay_models(case):
    variant, request = DELAY_REQUESTS[case]
    np.testing.assert_array_equal(one(variant, **request).grid, DELAY_GRIDS[f"{case}.input_ids"][0])


def test_a_continuation_gives_the_codec_the_recording():
    variant, request = DELAY_REQUESTS["continuation_clone_a"]
    utterance = one(variant, **request)
    np.testing.assert_array_equal(utterance.decoder_codes, request["references"][1].codes)
    assert utterance.decoder_codes.dtype == np.uint16
    form = model("tts").prompt.form
    assert prefix_frames(utterance.grid, form) == len(utterance.decoder_codes)
    assert not len(one("tts", text=LINE).decoder_codes)


def test_a_dialogue_goes_on_from_the_clips_of_all_its_speakers():
    said = {1: "the rain is falling.", 2: "[S2]the wind is moving."}
    references = {n: clip(f"ttsd_voice_clone.ref{n - 1}", said[n]) for n in (1, 2)}
    speech = model("ttsd")
    utterance = one("ttsd", text="[S1]A short line.[S2]Yes.", references=references)
    joined = np.concatenate([references[1].codes, references[2].codes])
    np.testing.assert_array_equal(utterance.decoder_codes, joined)
    text = speech.prompt.tokenizer.decode(
        [i for i in utterance.grid[:, 0].tolist() if i < speech.prompt.form.pad]
    )
    whole = "[S1]the rain is falling.[S2]the wind is moving.[S1]A short line.[S2]Yes."
    assert f"- Text:\n{whole}\n" in text


def test_a_dialogue_without_tags_is_the_first_speakers():
    np.testing.assert_array_equal(one("ttsd", text=LINE).grid, one("ttsd", text=f"[S1]{LINE}").grid)


LOCAL_GRIDS = load_file(LOCAL / "prompts.safetensors")
FOX, BANK = "The quick brown fox jumps.", "The river bank is quiet."


def local_clip(name, transcript=""):
    return {1: Reference(LOCAL_GRIDS[name].astype(np.uint16), transcript)}


@pytest.mark.parametrize(
    ("case", "request_"),
    [
        ("plain_en", {"text": FOX}),
        ("plain_zh_lang", {"text": "你好，世界。今天天气很好。", "language": "Chinese"}),
        ("plain_pause", {"text": "The fox [pause 3.2s]jumps.", "language": "English"}),
        (
            "clone_one_ref",
            {"text": FOX, "language": "English", "references": local_clip("codesA")},
        ),
        ("cont_peer_join", {"text": FOX, "references": local_clip("codesA", f" {BANK} ")}),
    ],
)
def test_golden_prompts_of_local(case, request_):
    utterance = one("local", **request_)
    np.testing.assert_array_equal(utterance.grid, LOCAL_GRIDS[f"{case}.input_ids"])
    prior = LOCAL_GRIDS["codesA"] if case.startswith("cont") else np.zeros((0, 12))
    np.testing.assert_array_equal(utterance.decoder_codes, prior)


NANO_GRIDS = load_file(NANO / "prompts.safetensors")


@pytest.mark.parametrize(
    ("case", "request_"),
    [
        ("plain_en", {"text": FOX}),
        ("clone_en", {"text": FOX, "references": {1: "codesA"}}),
        ("cont_en", {"text": FOX, "references": {1: "codesA"}, "transcript": BANK}),
        ("clone_nq8", {"text": FOX, "references": {1: "codesA"}, "n_vq": 8}),
    ],
)
def test_golden_prompts_of_nano(case, request_):
    transcript = request_.pop("transcript", "")
    references = {
        number: Reference(NANO_GRIDS[name].astype(np.uint16), transcript)
        for number, name in request_.pop("references", {}).items()
    }
    utterance = one("nano", normalizer="off", references=references, **request_)
    np.testing.assert_array_equal(utterance.grid, NANO_GRIDS[f"{case}.input_ids"])
    assert len(utterance.decoder_codes) == (len(NANO_GRIDS["codesA"]) if transcript else 0)


def test_nano_speaks_a_long_text_in_chunks_that_share_their_reference():
    golden = json.loads((NANO / "chunking.json").read_text())
    text = golden["texts"]["en_long"]
    codes = NANO_GRIDS["codesA"].astype(np.uint16)
    request = SpeechRequest(
        text=text, frame_ms=FRAME_MS, references={1: Reference(codes)}, normalizer="off"
    )
    speech = model("nano")
    utterances = speech.utterances(request)
    parts = golden["results"]["tiny/en_long/75"]["effective"]
    assert len(utterances) == len(parts) > 1
    for utterance, part in zip(utterances, parts, strict=True):
        np.testing.assert_array_equal(utterance.grid, speech.prompt.clone(part, codes))
        assert utterance.max_frames == 375
    assert [bool(utterance.pause_s) for utterance in utterances] == [True] * (len(parts) - 1) + [
        False
    ]
    # Without a reference each chunk would have a voice of its own.
    assert len(speech.utterances(SpeechRequest(text=text, frame_ms=FRAME_MS))) == 1


def test_the_released_normaliser_can_be_off():
    text = "你好——世界！！！"
    assert len(one("tts", text=text).grid) != len(one("tts", text=text, normalizer="off").grid)
    with pytest.raises(ValueError, match="nothing is left to say"):
        one("voice_generator", text="[aside]", instructions="calm")


def test_realtime_answers_a_dialogue():
    speech = model("realtime")
    sound = np.full((3, speech.n_vq), 5, np.uint16)
    history = (PastTurn("user", "Hello?"), PastTurn("assistant", "Yes?", sound))
    utterance = one("realtime", text="Good.", history=history, references={1: Reference(sound)})
    prompt = speech.prompt
    assert utterance.fed_ids == tuple(prompt.tokenizer.encode("Good."))
    np.testing.assert_array_equal(utterance.decoder_codes, sound)
    assert (utterance.grid[:, 0] == prompt.voice_pad).sum() == 3
    longer = one("realtime", text="Good.").grid
    assert len(utterance.grid) > len(longer) + 6


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        (lambda n: np.zeros((2, n + 1)), r"codes of turn 0 are \[2, \d+\], expected \[frames, "),
        (lambda n: np.full((2, n), 60_000), r"code 60000 of turn 0 is outside 0\.\."),
    ],
)
def test_codes_of_a_turn_that_do_not_fit(codes, message):
    n_vq = model("realtime").n_vq
    history = (PastTurn("assistant", "Yes?", codes(n_vq).astype(np.uint16)),)
    with pytest.raises(ValueError, match=message):
        one("realtime", text="Good.", history=history)


@pytest.mark.parametrize("variant", ["tts", "ttsd", "local", "nano"])
def test_codes_of_a_reference_that_do_not_fit(variant):
    n_vq = model(variant).n_vq
    wrong = np.full((3, n_vq), 60_000, np.uint16)
    with pytest.raises(ValueError, match=r"code 60000 .*outside 0"):
        one(variant, text="Good.", references={1: Reference(wrong)})
    narrow = np.zeros((3, n_vq + 40), np.uint16)
    if variant != "ttsd":  # which takes the first levels of a deeper quantizer
        with pytest.raises(ValueError, match="expected integers"):
            one(variant, text="Good.", references={1: Reference(narrow)})


@pytest.mark.parametrize("variant", VARIANTS)
def test_capabilities_make_sense(variant):
    can = model(variant).capabilities
    assert can.requires <= can.takes <= set(FIELDS)
    assert not set(can.hints) & (can.takes - can.requires)
    assert bool(can.languages) == ("language" in can.takes)
    assert (can.max_speakers > 1) == ("speakers" in can.takes)
    assert can.requires <= can.example.keys()


def test_default_names_differ():
    names = [model(variant).capabilities.default_name for variant in VARIANTS]
    assert len(set(names)) == len(names) == 7


@pytest.mark.parametrize(
    ("given", "name"),
    [
        *(("en", "English"), ("CHINESE", "Chinese"), (" fr ", "French"), ("Auto", None)),
        *(("", None), ("fa", "Persian (Farsi)"), ("Persian", "Persian (Farsi)")),
    ],
)
def test_languages_go_by_name_or_code(given, name):
    can = Capabilities(
        title="x", default_name="x", takes=frozenset(), languages=tuple(LANGUAGES.values())
    )
    assert can.language(given) == name


def test_an_unknown_language_is_told_those_that_are_known():
    with pytest.raises(ValueError, match=r"'Klingon' is not one of Chinese, .*Vietnamese, Auto"):
        model("tts").capabilities.language("Klingon")
