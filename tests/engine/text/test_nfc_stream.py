"""Normal form C of a stream equals that of the whole, and only as much is held back as must be."""

from __future__ import annotations

import sys
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import normalizers

from engine.text.nfc import Arrival, NfcStream, joining_of
from engine.text.pretoken import kind_of
from tests.engine.text.scripts import texts

NFC = normalizers.NFC()
MARKS = st.characters(categories=["Mn", "Mc"])
JAMO = st.characters(min_codepoint=0x1100, max_codepoint=0x11FF)


@settings(deadline=None, max_examples=200)
@given(pieces=st.lists(st.one_of(texts(), st.text(MARKS | JAMO, max_size=6)), max_size=5))
def test_any_cutting_gives_the_normal_form_of_the_whole(pieces: list[str]) -> None:
    pieces = [piece.encode("utf-8", "replace").decode() for piece in pieces]
    stream = NfcStream()
    released = "".join(stream.feed(piece) for piece in pieces) + stream.finish()
    assert released == NFC.normalize_str("".join(pieces))


@pytest.fixture(scope="module")
def characters() -> list[str]:
    """All of Unicode that Python knows, but for private use and the newline between samples."""
    unused = {"Cn", "Co", "Cs"}
    characters = map(chr, range(sys.maxunicode + 1))
    return [c for c in characters if c != "\n" and unicodedata.category(c) not in unused]


@pytest.mark.slow
@pytest.mark.parametrize("before", ["a", "\u1eb9", "\u1100", "\uac00", "\u304b", "\u09c7"])
def test_a_start_changes_nothing_before_it(characters: list[str], before: str) -> None:
    starts = [char for char in characters if joining_of(char).arrival is Arrival.STARTS]
    alone = NFC.normalize_str("\n".join(starts)).split("\n")
    joined = NFC.normalize_str("\n".join(before + char for char in starts)).split("\n")
    assert joined == [before + char for char in alone]


@pytest.mark.slow
@pytest.mark.parametrize("after", ["\u0301", "\u0323", "\u1161", "\u11a8", "\u09be", "\u3099"])
def test_nothing_changes_a_start_that_is_not_open(characters: list[str], after: str) -> None:
    closed = [char for char in characters if joining_of(char) == (Arrival.STARTS, False)]
    text = "\n".join(char + after for char in closed)
    assert NFC.normalize_str(text) == text


@pytest.mark.slow
def test_no_normalisation_changes_the_kind_of_the_first_character(characters: list[str]) -> None:
    for char in characters:
        decomposed = unicodedata.normalize("NFD", char)
        if decomposed != char:
            assert kind_of(decomposed[0]) is kind_of(char)
            assert kind_of(NFC.normalize_str(char)[0]) is kind_of(char)


@pytest.mark.parametrize("char", ["我", "あ", "7", " ", ".", "ส", "각", "😀", "\n", "'"])
def test_what_nothing_attaches_to_is_released_at_once(char: str) -> None:
    assert NfcStream().feed(char) == char


@pytest.mark.parametrize(
    ("pieces", "released"),
    [
        (["e", "\u0301", "x"], ["", "", "\u00e9"]),
        (["\u00e9", "\u0323", "x"], ["", "", "\u1eb9\u0301"]),
        (["\u110b", "\u1161", "\u11ab"], ["", "", "\uc548"]),
        (["\u110b", "\u1161", "."], ["", "", "\uc544."]),
        (["\u09c7", "\u09be", "x"], ["", "", "\u09cb"]),
        (["\uac01", "\u11a8"], ["\uac01", "\u11a8"]),
        (["\u304b", "\u3099", "\u3099", "。"], ["", "", "", "\u304c\u3099。"]),
    ],
)
def test_release(pieces: list[str], released: list[str]) -> None:
    stream = NfcStream()
    assert [stream.feed(piece) for piece in pieces] == released


def test_the_head_is_the_first_that_is_held_back() -> None:
    stream = NfcStream()
    stream.feed("xe\u0301")
    assert stream.head == "e"
    stream.finish()
    assert stream.head is None
