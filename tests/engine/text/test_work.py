"""Work is in proportion to the text: counted in steps of the interpreter and in bytes, not time."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from engine.text import nfc, pretoken
from engine.text.incremental import IncrementalTokenizer
from engine.text.plain import PlainTokenizer

pytestmark = pytest.mark.slow

REPEATED = {
    "words": "it's an 8-word sentence, said again. ",
    "chinese": "我们今天去公园散步然后",
    "one long word": "abracadabra",
    "thai": "สวัสดีครับ",
    "emoji": "👩‍👧👍🏽",
    "code": "a[i]!=b--;\n\t\t",
}
LONG_TEXTS = {
    "all ideographs": "".join(map(chr, range(0x4E00, 0x4E00 + 8000))),
    "all syllables": "".join(map(chr, range(0xAC00, 0xAC00 + 8000))),
    "all emoji": "".join(map(chr, range(0x1F300, 0x1F600))),
    "all letters": "".join(map(chr, range(0x00A0, 0x00A0 + 8000))),
    "decomposed letters": "e\u0301\u0323" * 2667,
    "decomposed syllables": "\u1112\u1161\u11ab" * 2667,
    "joining letters": "\u09c7\u09be" * 4000,
    "marks": "x" + "\u0301" * 7999,
    "words": "The same sentence, over and over. " * 240,
}


def steps(action: Callable[[], Any]) -> int:
    """Count the lines of `engine.text` that run, each turn of a loop anew."""
    count = 0

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        if not frame.f_globals["__name__"].startswith("engine.text."):
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return count


def steps_after(plain: PlainTokenizer, start: str, unit: str, repeats: int) -> int:
    """Count the steps of feeding `unit` character by character after `start` and repeats of it."""
    tokenizer = IncrementalTokenizer(plain)
    tokenizer.feed(start + unit * repeats)
    return steps(lambda: [tokenizer.feed(char) for char in unit])


@pytest.mark.parametrize("unit", REPEATED.values(), ids=REPEATED)
def test_a_delta_costs_the_same_however_much_text_came_before(
    plain: PlainTokenizer, unit: str
) -> None:
    steps_after(plain, "", unit, 502)  # fills the caches
    counts = [steps_after(plain, "", unit, repeats) for repeats in (20, 21, 22, 500, 501, 502)]
    assert max(counts[3:]) <= max(counts[:3])


@pytest.mark.parametrize(
    ("start", "unit"),
    [("\n", "        "), ("x\n", " \t\u2003 "), ("a", "\u0301\u0323\u0301"), ("", "\u0323" * 4)],
    ids=["spaces after a newline", "mixed white space after a newline", "marks", "marks alone"],
)
def test_a_delta_costs_the_same_however_much_is_held_back(
    plain: PlainTokenizer, start: str, unit: str
) -> None:
    steps_after(plain, start, unit, 1000)  # fills the caches
    few, many = (steps_after(plain, start, unit, repeats) for repeats in (100, 1000))
    assert many <= few


@pytest.mark.parametrize("letters", ["etaoinshrdlu", "a", "是我们"])
def test_a_long_word_takes_work_in_proportion(plain: PlainTokenizer, letters: str) -> None:
    word = "".join(random.Random(8).choices(letters, k=8000))
    IncrementalTokenizer(plain).feed(word)  # fills the caches

    def cost(length: int) -> int:
        tokenizer = IncrementalTokenizer(plain)
        return steps(lambda: tokenizer.feed(word[:length]) + tokenizer.finish())

    assert cost(8000) < 9 * cost(1000)


@pytest.mark.parametrize("held", ["\n" + " " * 8000, "a" + "\u0301\u0323" * 4000])
def test_what_was_held_back_comes_out_whole(plain: PlainTokenizer, held: str) -> None:
    tokenizer = IncrementalTokenizer(plain)
    ids = [token for char in held for token in tokenizer.feed(char)]
    assert ids + tokenizer.feed("x") + tokenizer.finish() == plain.encode(held + "x")


class Counting:
    """Stands before a part of the tokenizers library and counts the bytes it is given."""

    def __init__(self, part: Any) -> None:
        self.part = part
        self.bytes = 0

    def normalize_str(self, text: str) -> Any:
        self.bytes += len(text.encode())
        return self.part.normalize_str(text)

    def encode(self, text: str, **_options: Any) -> Any:
        raise AssertionError("the incremental tokenizer encodes by itself")


@pytest.fixture
def counters(monkeypatch: pytest.MonkeyPatch) -> list[Counting]:
    counters = [Counting(nfc._nfc), Counting(pretoken._classes)]
    monkeypatch.setattr(nfc, "_nfc", counters[0])
    monkeypatch.setattr(pretoken, "_classes", counters[1])
    nfc._normalized_char.cache_clear()
    pretoken.kind_of.cache_clear()
    return counters


@pytest.mark.parametrize("text", LONG_TEXTS.values(), ids=LONG_TEXTS)
def test_the_library_is_given_at_most_four_times_the_bytes(
    monkeypatch: pytest.MonkeyPatch, tiny: PlainTokenizer, counters: list[Counting], text: str
) -> None:
    whole = tiny.encode(text)
    monkeypatch.setattr(tiny, "_plain", Counting(None))
    tokenizer = IncrementalTokenizer(tiny)
    ids = [token for char in text for token in tokenizer.feed(char)] + tokenizer.finish()
    assert ids == whole
    assert 0 < sum(counter.bytes for counter in counters) <= 4 * len(text.encode())
