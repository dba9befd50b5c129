"""The golden cases: what is committed after each delta, and in the end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.text.incremental import IncrementalTokenizer
from engine.text.plain import PlainTokenizer

CASES = Path(__file__).parents[2] / "vectors" / "tokenizer" / "cases.json"
VECTORS = json.loads(CASES.read_text(encoding="utf-8"))


def check(plain: PlainTokenizer, case: dict[str, Any]) -> None:
    assert plain.encode(case["text"]) == case["ids_whole"]
    tokenizer = IncrementalTokenizer(plain)
    ids: list[int] = []
    for i, delta in enumerate(case["deltas"]):
        ids += tokenizer.feed(delta)
        assert case["earliest_commit"][i] - 1 <= len(ids)
        assert len(ids) <= case.get("at_most", case["earliest_commit"])[i]
        assert ids == case["ids_whole"][: len(ids)]
    assert ids + tokenizer.finish() == case["ids_whole"]


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: case["name"])
def test_tiny_vocabulary(tiny: PlainTokenizer, case: dict[str, Any]) -> None:
    check(tiny, case)


@pytest.mark.slow
@pytest.mark.parametrize("case", VECTORS["cases_qwen3_real"], ids=lambda case: case["name"])
def test_qwen3_vocabulary(qwen3: PlainTokenizer, case: dict[str, Any]) -> None:
    check(qwen3, case)
