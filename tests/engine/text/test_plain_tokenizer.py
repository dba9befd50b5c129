"""Reading a `tokenizer.json`, and refusing one whose ids could not be told early."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.text.plain import PlainTokenizer
from tests.engine.text.conftest import TINY

Change = Callable[[dict[str, Any]], Any]


def written(tmp_path: Path, change: Change) -> Path:
    settings = json.loads(TINY.read_text())
    change(settings)
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(settings))
    return path


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda s: s.update(normalizer=None), "its normalizer is None; only 'NFC' is supported"),
        (lambda s: s.update(pre_tokenizer=None), "its pattern is None"),
        (lambda s: s["model"].update(ignore_merges=True), "its ignore_merges is True"),
        (lambda s: s["model"].update(dropout=0.1), "its dropout is 0.1"),
        (lambda s: s["model"].update(type="Unigram"), "its model is 'Unigram'"),
        (
            lambda s: s["pre_tokenizer"]["pretokenizers"][0]["pattern"].update(Regex=r"\w+"),
            r"its pattern is '\\w+'",
        ),
        (lambda s: s["model"]["merges"].reverse(), " comes before the merges that make these"),
        (lambda s: s["model"]["merges"].append(["h", "e"]), "its merge of 'h' and 'e' comes "),
    ],
)
def test_a_file_of_another_kind_is_refused(tmp_path: Path, change: Change, said: str) -> None:
    path = written(tmp_path, change)
    with pytest.raises(ValueError, match=r"tokenizer\.json: ") as refusal:
        PlainTokenizer.from_file(path)
    assert said in str(refusal.value)


def test_merges_may_be_written_as_strings(tmp_path: Path, tiny: PlainTokenizer) -> None:
    def join(settings: dict[str, Any]) -> None:
        settings["model"]["merges"] = [" ".join(pair) for pair in settings["model"]["merges"]]

    text = "the people, please"
    assert PlainTokenizer.from_file(written(tmp_path, join)).encode(text) == tiny.encode(text)


def test_an_unknown_marker_is_named(plain: PlainTokenizer) -> None:
    assert plain.token_id("<|im_end|>") > 0
    with pytest.raises(ValueError, match=r"the tokenizer has no token '<\|nope\|>'"):
        plain.token_id("<|nope|>")


@pytest.mark.parametrize("text", ["Hello, world!", "它是一个测试", "<think>\n  x</think>", "é👍🏽"])
def test_decoding_gives_the_text(plain: PlainTokenizer, text: str) -> None:
    assert plain.decode(plain.encode(text)) == text
