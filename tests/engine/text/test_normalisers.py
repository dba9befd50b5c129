"""The normalisers of the delay-pattern models against upstream's."""

# ruff: noqa: RUF001  (full-width punctuation is what this is about)

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.text.dialogue import merge_turns, normalise_dialogue, speakers, with_transcripts
from engine.text.normaliser import normalise
from engine.text.voice_design import normalise_description, normalise_text

VECTORS = Path(__file__).parents[2] / "vectors"
GOLDEN = json.loads((VECTORS / "delay" / "text_norm.json").read_text())


def pairs(name):
    return [(case["input"], case["output"]) for case in GOLDEN[name]]


@pytest.mark.parametrize(("given", "expected"), pairs("family"))
def test_family(given, expected):
    assert normalise(given) == expected


@pytest.mark.parametrize(("given", "expected"), pairs("ttsd_dialogue_optional"))
def test_dialogue(given, expected):
    assert normalise_dialogue(given) == expected


@pytest.mark.parametrize(("given", "expected"), pairs("ttsd_merge_consecutive_tags"))
def test_merge(given, expected):
    assert merge_turns(given) == expected


@pytest.mark.parametrize("case", GOLDEN["ttsd_prefixed_text"], ids=lambda case: case["text"])
def test_transcripts(case):
    transcripts = {int(speaker): said for speaker, said in case["prompts"].items()}
    assert sorted(transcripts) == case["speakers"]
    assert with_transcripts(case["text"], transcripts) == case["output"]


def test_text_of_the_golden_prompt():
    case = json.loads((VECTORS / "delay" / "prompts.json").read_text())["cases"][
        "tts_zh_normalized"
    ]
    assert f"- Text:\n{normalise(case['fields']['text'])}\n" in case["rendered"][0]


def test_speakers():
    assert speakers("[S1]a[S12]b[S1]c [3] S4") == {1, 12}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ('He said "go"\nnow', "He said go now"),
        ("[laughs]你好{x}（小声）再见", "你好，小声，再见"),
        ("等等，。！走", "等等！走"),
        ("《书》！", "，书！"),
        ("e-mail_me", "e-mail_me"),
    ],
)
def test_text_of_a_designed_voice(given, expected):
    assert normalise_text(given) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ('a "warm" voice, low-pitched', 'a "warm" voice, low，pitched'),
        ("低沉,温暖", "低沉，温暖"),
        ("old_man [x]", "old，man"),
    ],
)
def test_description_of_a_designed_voice(given, expected):
    assert normalise_description(given) == expected


SCRAPS = st.lists(
    st.sampled_from(
        [*"aZ1 甲の。，.,!？-_/:#@<>=→《》【】「」…\n\t", "http://x.y", "[S1]", "\U000f0001"]
    ),
    max_size=30,
).map("".join)


@given(SCRAPS)
def test_nothing_private_is_left_and_no_letter_is_lost(text):
    said = normalise(text)
    assert not any(0xE000 <= ord(c) <= 0xF8FF or ord(c) >= 0xF0000 for c in said)
    for letters in ("aZ", "甲の"):
        assert [c for c in said if c in letters] == [c for c in text if c in letters]
