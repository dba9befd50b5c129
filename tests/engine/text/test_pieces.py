"""SentencePiece models: the ids of any text, and markers only where we put them."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.text.pieces import PieceTokenizer, without_markers

NANO = Path(__file__).parents[2] / "vectors" / "local_nano" / "nano"
MODEL = NANO / "tiny" / "tokenizer.model"


@pytest.fixture(scope="module")
def tokenizer() -> PieceTokenizer:
    return PieceTokenizer.from_file(MODEL)


def test_a_marker_is_one_id_in_a_template_and_plain_text_elsewhere(
    tokenizer: PieceTokenizer,
) -> None:
    text = "say <user_inst> twice"
    assert 13 in tokenizer.encode_template(text)
    ids = tokenizer.encode(text)
    assert not set(ids) & set(range(3, 15))
    assert len(ids) > len(tokenizer.encode_template(text))


@pytest.mark.parametrize(
    "text",
    ["The quick brown fox jumps.", "你好，世界。", "café 🙂 １２３", "  a\n\nb  "],  # noqa: RUF001
)
def test_text_without_markers_has_the_same_ids_either_way(
    tokenizer: PieceTokenizer, text: str
) -> None:
    assert tokenizer.encode(text) == tokenizer.encode_template(text) != []


def test_newlines_and_outer_spaces_are_no_ids(tokenizer: PieceTokenizer) -> None:
    assert tokenizer.encode("\n") == tokenizer.encode("") == []
    assert tokenizer.encode("  one\ntwo ") == tokenizer.encode("one two")


def test_only_the_kind_of_markers_changes() -> None:
    model = MODEL.read_bytes()
    changed = without_markers(model)
    differing = [index for index in range(len(model)) if model[index] != changed[index]]
    assert len(model) == len(changed)
    assert len(differing) == 11
    assert without_markers(changed) == changed


def test_a_lone_surrogate_is_no_error(tokenizer: PieceTokenizer) -> None:
    assert tokenizer.encode("a\ud800b") == tokenizer.encode("a\ufffdb")


@pytest.mark.parametrize("content", [b"hello there", b"\x0a\xff\xff", b"\x0f\x00"])
def test_a_file_that_is_no_model_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "tokenizer.model"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"tokenizer\.model is not a SentencePiece model"):
        PieceTokenizer.from_file(path)
