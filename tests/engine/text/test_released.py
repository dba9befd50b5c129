"""Each model's text pipeline as a whole, against what the released ones give."""

# ruff: noqa: RUF001  (full-width punctuation is what this is about)

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from engine.models.variants import VARIANTS
from engine.text import released
from engine.text.released import RULES, NormaliserUnavailable, as_released, read_numbers

VECTORS = Path(__file__).parents[2] / "vectors"
DELAY = json.loads((VECTORS / "delay" / "text_norm.json").read_text())
NANO = json.loads((VECTORS / "local_nano" / "nano" / "text_normalization.json").read_text())


def test_every_pipeline_is_one_of_a_model() -> None:
    assert RULES.keys() < VARIANTS.keys()


@pytest.mark.parametrize(
    ("variant", "cases"),
    [
        ("tts", DELAY["family"]),
        ("ttsd", DELAY["ttsd_dialogue_optional"]),
        ("nano", NANO["cases"]),
    ],
)
def test_golden_texts(variant: str, cases: list[dict[str, str]]) -> None:
    assert [as_released(variant, case["input"]) for case in cases] == [
        case["output"] for case in cases
    ]


def test_golden_pipeline_without_wetext() -> None:
    for case in NANO["pipeline_without_wetext"]:
        assert case["result"]["normalization_method"] == "robust"
        assert as_released("nano", case["text"]) == case["result"]["text"]


@pytest.mark.parametrize("variant", ["realtime", "local", "sound_effect"])
def test_models_without_a_pipeline_get_the_text_as_it_is(variant: str) -> None:
    assert as_released(variant, "# a -> b……") == "# a -> b……"


def test_a_designed_voice_has_its_description_tidied_too() -> None:
    assert RULES["voice_generator"].description("低沉,温暖") == "低沉，温暖"
    assert RULES["tts"].description("# as it is") == "# as it is"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("价格 12 元", "价格十二元。"),
        ("呃，今天是2024-05-01，-2度", "呃，今天是二零二四年五月一日，负二度。"),
        ("这儿-那儿 有3个", "这儿，那儿有三个。"),
        ("I have 3 apples and $5", "I have three apples and five dollars。"),
        ("no number", "no number。"),
    ],
)
def test_wetext_reads_numbers_in_the_language_of_the_text(text: str, said: str) -> None:
    assert as_released("nano", text, wetext=True) == said


def test_a_voice_decides_where_no_letter_does() -> None:
    assert as_released("nano", "12", wetext=True) == "十二。"
    assert as_released("nano", "12", wetext=True, english_voice=True) == "twelve。"


def test_wetext_is_refused_where_the_pipeline_has_none() -> None:
    with pytest.raises(ValueError, match=r"no part of the pipeline of 'tts'; .* have it: nano"):
        as_released("tts", "12", wetext=True)
    with pytest.raises(ValueError, match="no part of the pipeline of 'local'"):
        as_released("local", "12", wetext=True)


def test_wetext_that_is_not_installed_is_refused_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "wetext", None)
    released._wetext.cache_clear()
    with pytest.raises(NormaliserUnavailable, match=r"pip install 'moss-realtime\[wetext\]'"):
        read_numbers("12", "en")
