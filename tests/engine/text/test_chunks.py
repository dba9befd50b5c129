"""Long texts are cut where MOSS-TTS-Nano's released front end cuts them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.text.chunks import chunks, prepare, split
from engine.text.pieces import PieceTokenizer
from tests.engine.text.test_pieces import NANO

GOLDEN = json.loads((NANO / "chunking.json").read_text())
TINY = {name: want for name, want in GOLDEN["results"].items() if name.startswith("tiny/")}


@pytest.fixture(scope="module")
def tokenizer() -> PieceTokenizer:
    return PieceTokenizer.from_file(NANO / "tiny" / "tokenizer.model")


@pytest.mark.parametrize("name", GOLDEN["texts"])
def test_golden_preparation(name: str) -> None:
    assert prepare(GOLDEN["texts"][name]) == GOLDEN["prepared"][name]


@pytest.mark.parametrize("name", TINY)
def test_golden_chunks(tokenizer: PieceTokenizer, name: str) -> None:
    _, case, budget = name.split("/")

    def count(text: str) -> int:
        return len(tokenizer.encode(text))

    text, want = GOLDEN["texts"][case], TINY[name]
    assert [part.strip() for part in split(text, count, int(budget))] == want["chunks"]
    got = chunks(text, count, int(budget))
    assert [chunk.text for chunk in got] == want["effective"]
    assert [count(chunk.text) for chunk in got] == want["token_counts"]
    assert [chunk.pause_s for chunk in got] == [*want["pause_seconds"], 0.0]


def test_a_budget_of_nothing_cuts_nothing() -> None:
    assert [chunk.text for chunk in chunks("One. two. Three.", len, 0)] == ["One. two. Three."]


def characters(text: str) -> int:
    """A tokenizer, like the real one, in which spaces cost nothing."""
    return len("".join(text.split()))


def test_words_are_cut_where_nothing_else_helps() -> None:
    assert split("abcdefg", characters, 3) == ["Abc", "def", "g."]


def test_a_cut_goes_back_to_a_space_only_if_one_is_near() -> None:
    assert split("aaaa " + "b" * 30, characters, 20) == ["Aaaa", "b" * 20, "b" * 10 + "."]
    assert split("aaaa " + "b" * 60, characters, 40)[0] == "Aaaa " + "b" * 36


@given(st.text(alphabet='ab C,.;!?。，中文  ”"', max_size=60), st.integers(1, 20))  # noqa: RUF001
def test_nothing_is_lost_and_no_chunk_is_over_budget(text: str, budget: int) -> None:
    parts = split(text, characters, budget)
    assert "".join("".join(parts).split()) == "".join(prepare(text).split())
    assert all(0 < characters(part) <= budget for part in parts)
