"""MOSS-TTS-Nano's clean-up against what its released applications give."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.text.clean import clean, language, spell_hyphens

GOLDEN = json.loads(
    (
        Path(__file__).parents[2] / "vectors" / "local_nano" / "nano" / "text_normalization.json"
    ).read_text()
)


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: case["input"])
def test_golden_clean_up(case: dict[str, str]) -> None:
    assert clean(case["input"]) == case["output"]
    assert clean(case["output"]) == case["again"]


@pytest.mark.parametrize("case", GOLDEN["zh_hyphen"], ids=lambda case: case["input"])
def test_golden_hyphens(case: dict[str, str]) -> None:
    assert spell_hyphens(case["input"]) == case["output"]


@pytest.mark.parametrize("case", GOLDEN["language"], ids=lambda case: case["text"])
def test_golden_language(case: dict[str, str]) -> None:
    assert language(case["text"], english_voice=case["voice"] == "Ava") == case["lang"]


@pytest.mark.parametrize("case", GOLDEN["pipeline_without_wetext"], ids=lambda case: case["text"])
def test_golden_pipeline_cleans_text_and_transcript(case: dict) -> None:
    for name in ("text", "prompt_text"):
        assert clean(case[name]) == case["result"][name]


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("Done.\nNext one", "Done. Next one。"),
        ("wait... what", "wait。what。"),
        ("see a_b.py_c now", "see a_b.py_c now。"),
        ("lone \ud800 half", "lone half。"),
        ("private \U000f0000 use", "private use。"),
    ],
)
def test_cases_of_our_own(text: str, cleaned: str) -> None:
    assert clean(text) == cleaned


@given(st.text(alphabet="aZ9 _-.@#/中文。，！?…《》[]「」\"'\n>→\U000f0000é🙂", max_size=30))  # noqa: RUF001
def test_any_text_has_one_line_without_private_characters(text: str) -> None:
    cleaned = clean(text)
    assert "\n" not in cleaned
    assert "\U000f0000" not in cleaned
