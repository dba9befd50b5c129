"""Any cutting of any text gives the ids of the whole, each as early as promised."""

from __future__ import annotations

import itertools
import random
import string

import pytest
from hypothesis import HealthCheck, example, given, settings

from engine.text.incremental import IncrementalTokenizer
from engine.text.plain import PlainTokenizer
from tests.engine.text.scripts import SENTENCES, cut_texts, texts, utf16_units

CHINESE = "我们今天早上一起去公园散步然后回家吃饭因为下午还要去学校参加一个非常重要的考试"


def check(plain: PlainTokenizer, deltas: list[str]) -> None:
    whole = plain.encode("".join(deltas))
    tokenizer = IncrementalTokenizer(plain)
    ids: list[int] = []
    for delta in deltas:
        ids += tokenizer.feed(delta)
        assert ids == whole[: len(ids)]
    assert ids + tokenizer.finish() == whole


@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(deltas=cut_texts())
@example(deltas=["\ud83d", "\ude00", "\ud83d", "x", "\ude00", "\ud83d"])
@example(deltas=[" ", "\u2003", "a"])
@example(deltas=["\n", " ", "\u2003", "a"])
@example(deltas=["-", "-", ".", "c"])
def test_any_cutting_gives_the_ids_of_the_whole(plain: PlainTokenizer, deltas: list[str]) -> None:
    check(plain, deltas)


@settings(deadline=None, max_examples=80, suppress_health_check=[HealthCheck.too_slow])
@given(text=texts())
def test_one_code_unit_at_a_time(plain: PlainTokenizer, text: str) -> None:
    check(plain, utf16_units(text))


@pytest.mark.parametrize(
    ("letters", "length"),
    [
        (" \n\u2003a", 6),
        ("'s\u017fvre ", 4),
        ("-' \na1", 4),
        ("e\u0301\u0323\u1100\u1161\u11a8", 4),
    ],
)
def test_all_short_texts(awkward: PlainTokenizer, letters: str, length: int) -> None:
    for text in itertools.product(letters, repeat=length):
        check(awkward, list(text))


@pytest.mark.parametrize("sentence", SENTENCES)
def test_real_sentences(plain: PlainTokenizer, sentence: str) -> None:
    for size in (1, 2, 3, 7):
        check(plain, [sentence[i : i + size] for i in range(0, len(sentence), size)])


def test_lone_halves_are_replacement_characters(plain: PlainTokenizer) -> None:
    assert plain.encode("a\ud83db\ude00") == plain.encode("a\ufffdb\ufffd")
    assert plain.encode("\ud83d\ude00") == plain.encode("😀")


def test_a_half_at_the_end_becomes_a_replacement_character(plain: PlainTokenizer) -> None:
    tokenizer = IncrementalTokenizer(plain)
    assert tokenizer.feed("\ud83d") == []
    assert tokenizer.finish() == plain.encode("\ufffd")


def test_nothing_is_nothing(plain: PlainTokenizer) -> None:
    tokenizer = IncrementalTokenizer(plain)
    assert tokenizer.feed("") == []
    assert tokenizer.finish() == []


def test_what_follows_the_end_is_another_text(plain: PlainTokenizer) -> None:
    tokenizer = IncrementalTokenizer(plain)
    for text in ("it's", " \n ", "e", "\u0301", "\ude00"):
        assert tokenizer.feed(text) + tokenizer.finish() == plain.encode(text)


def test_unpunctuated_chinese_starts_before_its_end(plain: PlainTokenizer) -> None:
    tokenizer = IncrementalTokenizer(plain)
    assert len(plain.encode(CHINESE)) > 12
    ids = [token for char in CHINESE[:-1] for token in tokenizer.feed(char)]
    assert len(ids) >= 12


@pytest.mark.parametrize("letters", [string.ascii_lowercase, "a", "ab", "的一是不了", "กิ่า"])
@pytest.mark.parametrize("size", [1, 8000])
def test_a_word_of_8000_letters(plain: PlainTokenizer, letters: str, size: int) -> None:
    word = "".join(random.Random(8000).choices(letters, k=8000))
    whole = plain.encode(word)
    tokenizer = IncrementalTokenizer(plain)
    ids = [token for i in range(0, 8000, size) for token in tokenizer.feed(word[i : i + size])]
    assert len(ids) > len(whole) - 128
    assert ids + tokenizer.finish() == whole


@pytest.mark.parametrize(
    "marker", ["<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "<|audio_pad|>"]
)
def test_markers_are_text_however_they_are_cut(plain: PlainTokenizer, marker: str) -> None:
    text = f"say {marker}now"
    ids = plain.encode(text)
    assert plain.decode(ids) == text
    for i in range(len(text) + 1):
        tokenizer = IncrementalTokenizer(plain)
        assert tokenizer.feed(text[:i]) + tokenizer.feed(text[i:]) + tokenizer.finish() == ids


def test_no_text_gives_a_control_id(plain: PlainTokenizer) -> None:
    for marker in ("<|im_start|>", "<|im_end|>"):
        assert plain.token_id(marker) not in plain.encode(marker)
