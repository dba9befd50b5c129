"""What language models write, and that no cutting of it makes a difference."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.text.normalise.normaliser import MAX_HELD_CHARS, Normaliser
from engine.text.wording import Piece, Wording, merged
from tests.engine.text.normalise.test_rules import CASES

MARKDOWN = [
    ("**bold** and *italic* and ***both***", "bold and italic and both"),
    ("__bold__ and _italic_ but snake_case", "bold and italic but snake case"),
    ("~~struck~~ `code`", "struck code"),
    ("# Title\n\nText", "Title.\n\nText"),
    ("### Really?\nYes", "Really?\nYes"),
    ("- one\n* two\n+ three!\n", "one.\ntwo.\nthree!\n"),
    ("  - nested\n", "nested.\n"),
    ("- [ ] open\n- [x] done\n", "open.\ndone.\n"),
    ("1. First\n2) Second\n", "one. First.\ntwo. Second.\n"),
    ("1.5 liters", "one point five liters"),
    ("-5 outside", "minus five outside"),
    ("> a quote\n> goes on", "a quote\ngoes on"),
    ("above\n\n---\n\nbelow", "above\n\n\n\nbelow"),
    ("[the docs](https://a.b/c_(d)) say", "the docs say"),
    ("![a cat](cat.png) here", "a cat here"),
    ("Wow! [Really](x)", "Wow! Really"),
    ("It is so [1], and so[^2].", "It is so , and so."),
    ("[12](https://a.b)", "twelve"),
    ("3*4 and 3 * 4", "three times four and three times four"),
    (r"2 \* 3", "two  three".replace("  ", " ")),
    ("| Name | Age |\n|:---|---:|\n| Bob | 42 |\n", "Name, Age.\n\nBob, forty-two.\n"),
    ("Run:\n```python\nx = 1\n# no\n```\nDone", "Run:\n\nDone"),
    ("a ```b``` c", "a c"),
    ("**Price:** $5", "Price: five dollars"),
    ("Great! \U0001f389 Go \U0001f44d\U0001f3fd!", "Great! Go !"),
    ("\U0001f469\u200d\U0001f4bb \U0001f1eb\U0001f1f7 1\ufe0f\u20e3", "one"),
    ("a  b", "a b"),
]
OTHER_SCRIPTS = [
    "我有3个苹果共5元。",
    "У меня 3 яблока и 5 % скидки.",  # noqa: RUF001
    "מחיר 10 שקלים",
    "ราคา 20 บาท",
    "क्ष\u200dक 12 रुपये",
    "3个",
]


def spoken(*deltas: str) -> str:
    return "".join(piece.spoken for piece in normalised(deltas))


def normalised(deltas: tuple[str, ...] | list[str]) -> list[Piece]:
    form = Normaliser()
    pieces = [piece for delta in deltas for piece in form.feed(delta)]
    return merged(pieces + form.flush())


@pytest.mark.parametrize(("written", "said"), MARKDOWN)
def test_markdown(written: str, said: str) -> None:
    assert spoken(written) == said


@pytest.mark.parametrize("text", OTHER_SCRIPTS)
def test_other_scripts_pass_unchanged(text: str) -> None:
    assert spoken(text) == text


def test_english_comes_back_after_another_script() -> None:
    assert spoken("我有3个。 You have 3.") == "我有3个。 You have three."


def test_unbroken_chinese_is_not_held() -> None:
    form = Normaliser()
    assert [form.feed(char) for char in "我们今天"] == [[Piece(c, c)] for c in "我们今天"]


@pytest.mark.parametrize(
    ("fed", "held"),
    [
        ("Hello there. ", " "),
        ("Hello wor", " wor"),
        ("It costs $5", " $5"),
        ("It costs $5 ", " $5 "),
        ("It costs $5 mil", " $5 mil"),
        ("It costs $5 each ", " "),
        ("so **", "**"),
        ("so **b", "**b"),
        ("\n- [", "- ["),
    ],
)
def test_what_is_held(fed: str, held: str) -> None:
    form = Normaliser()
    released = "".join(piece.written for piece in form.feed(fed))
    assert released + form.held == fed
    assert form.held.strip() == held.strip()


def test_flush_releases_what_is_held_and_the_markup_goes_on() -> None:
    form = Normaliser()

    def until_flush(text: str) -> str:
        return "".join(piece.spoken for piece in form.feed(text) + form.flush())

    assert until_flush("It costs $5") == "It costs five dollars"
    assert form.held == ""
    assert until_flush(" million.\n```\nx = ") == "million.\n"
    assert until_flush("1\n``") == ""
    assert until_flush("`\n- [a](http") == "\na"
    assert until_flush("s://x.y) b\n") == "b.\n"


FRAGMENTS = st.sampled_from(
    [
        *(written for _, written, _ in CASES),
        *(written for written, _ in MARKDOWN),
        *OTHER_SCRIPTS,
        *(" ", " ", "\n", "*", "_", "`", "```", "|", "[", "](", ")", "#", "-", "!", "~", "\\"),
        *("5", "$", "%", " km", " 123", "March", "\U0001f389", "\u200d", "\t", "word ", ", ", "."),
        "x" * 300,
        " " * 300,
        "https://example.com/" + "y" * 300,
        "*" * 40,
        "- " * 150,
    ]
)
TEXTS = st.lists(FRAGMENTS | st.text(max_size=8), max_size=12).map("".join)


@st.composite
def cut_texts(draw: st.DrawFn) -> list[str]:
    text = draw(TEXTS)
    cuts = sorted(draw(st.sets(st.integers(0, len(text)), max_size=12)))
    return [text[a:b] for a, b in itertools.pairwise([0, *cuts, len(text)])]


@settings(deadline=None, max_examples=300)
@given(cut_texts())
@example(["It costs $", "1", ",", "2", "34", ".", "5", "0", " mil", "lion."])
@example(["**", "bo", "ld*", "* [li", "nk](ht", "tp://a.b", "/c) "])
def test_any_cutting_gives_the_same_pieces(deltas: list[str]) -> None:
    text = "".join(deltas)
    whole = normalised([text])
    assert normalised(deltas) == whole
    assert normalised(list(text)) == whole


@settings(deadline=None, max_examples=200)
@given(cut_texts())
def test_the_written_forms_are_the_text_and_little_is_held(deltas: list[str]) -> None:
    form = Normaliser()
    written = ""
    for delta in deltas:
        written += "".join(piece.written for piece in form.feed(delta))
        fed = "".join(deltas)[: len(written) + len(form.held)]
        assert fed == written + form.held
        assert len(form.held) <= MAX_HELD_CHARS
    written += "".join(piece.written for piece in form.flush())
    assert (written, form.held) == ("".join(deltas), "")


@settings(deadline=None, max_examples=100)
@given(cut_texts())
def test_a_flush_between_deltas_loses_nothing(deltas: list[str]) -> None:
    form = Normaliser()
    written = [p.written for delta in deltas for p in form.feed(delta) + form.flush()]
    assert "".join(written) == "".join(deltas)


@settings(deadline=None, max_examples=200)
@given(TEXTS)
def test_every_position_maps_back(text: str) -> None:
    wording = Wording(tuple(normalised([text])))
    ends = []
    for at in range(len(wording.spoken) + 1):
        before, after = wording.split(at)
        assert before.spoken == wording.spoken[:at]
        assert (before.spoken + after.spoken, before.written + after.written) == (
            wording.spoken,
            wording.written,
        )
        ends.append(len(before.written))
    assert ends == sorted(ends)
    assert ends[-1] == len(text)


def test_a_number_is_heard_as_a_whole_or_not_at_all() -> None:
    wording = Wording(tuple(normalised(["It costs **$12.50** now"])))
    said = "It costs twelve dollars and fifty cents now"
    assert wording.spoken == said
    for heard, text in [
        ("It costs", "It costs"),
        ("It costs twelve dollars", "It costs **"),
        ("It costs twelve dollars and fifty cents", "It costs **$12.50**"),
        (said, "It costs **$12.50** now"),
    ]:
        assert wording.split(len(heard))[0].written == text
