"""The evaluation's texts: sizes, lengths, no overlap, and what a wrong name is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.train.corpus.sentences import normalised
from engine.train.evaluation.texts import held_out, read_texts


@pytest.mark.parametrize(("name", "count"), [("agent", 100), ("words", 100), ("final", 50)])
def test_a_set_has_distinct_texts_of_4_to_18_words_without_digits(name: str, count: int) -> None:
    texts = read_texts(name)
    assert len(texts) == len(set(texts)) == count
    assert [text for text in texts if not 4 <= len(text.split()) <= 18] == []
    assert [text for text in texts if any(letter.isdigit() for letter in text)] == []


def test_the_final_set_shares_no_text_with_the_others() -> None:
    others = {normalised(text) for name in ("agent", "words") for text in read_texts(name)}
    assert others.isdisjoint(map(normalised, read_texts("final")))


def test_every_text_is_held_out() -> None:
    assert len(held_out()) == 250 + len(read_texts("user"))
    assert normalised(read_texts("final")[0]) in held_out()


def test_a_file_is_read_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_text("One line.\n\n  Another one. \n...\n")
    assert read_texts(str(path)) == ["One line.", "Another one."]


def test_a_wrong_name_and_an_empty_file_are_explained(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'agents' is no file, and none of agent, words"):
        read_texts("agents")
    (tmp_path / "empty.txt").write_text("\n")
    with pytest.raises(ValueError, match="has no text"):
        read_texts(str(tmp_path / "empty.txt"))
