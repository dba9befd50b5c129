"""Strategies for text in real scripts, and for cutting text into deltas."""

from __future__ import annotations

import itertools

from hypothesis import strategies as st

SENTENCES = [
    "The quick brown fox doesn't jump; THEY'LL say it's 1,234.50 dollars (or so)!",
    "Voilà, déjà-vu: Ångström, e\u0301\u0323, o\u0308\u0304, \u1ec7, n\u0303o.",
    "我们今天去公园散步然后回家吃饭。《红楼梦》第１回",
    "東京タワーは、か\u3099き\u3099く゛、ﾊﾟﾋﾟ、高さ333メートルです。",
    "안녕하세요 반갑습니다 \u1112\u1161\u11ab\u1100\u1173\u11af \u110b\u1161 \uac00\u11a8",
    "السَّلَامُ عَلَيْكُمْ، كيف حالك؟ ١٢٣",
    "नमस्ते दुनिया, क\u093cिताब \u0958 \u09c7\u09be",
    "สวัสดีครับ วันนี้อากาศดีมาก ๑๒๓",
    "👩‍👩‍👧‍👦 👍🏽 🇺🇦🇯🇵 ❤️ 𠀀𝒳",
    "def f(x):\n\treturn x**2  # --.c\n\n    if a!=b: {'k': [\"v\"]}\r\n",
    "  \n \n  y\t \u00a0a \u2003b\n \u2003c\r\n\r\n   \u3000d\u0085e \u2028f      ",
    "'s 'RE 'll 'v 'r 'l 'd'm'T '\u017f it's'x ' ' 'r\u0301",
    "<|im_start|><|im_end|><think></think><tool_call><|audio|>",
    "----------========........!!!!!!??????aaaaaaaaaaaa",
]
ALPHABETS = [
    "aeoncE\u0301\u0323\u0302\u0308\u0327\u00e9\u1ec7 ",
    "的一是不了人我在有他。《》",
    "かきはガﾊﾟ\u3099\u309a、ー",
    "가각\u1100\u110b\u1161\u1162\u11a8\u11ab\u11a7",
    "نةلا\u064e\u0651\u0652 ",
    "क्षत\u093c\u093e\u0915\u0958\u09c7\u09be\u0b47\u0b56",
    "กิุ่้ำเ",
    "👍👩\u200d\ufe0f\U0001f3fd\U0001f1fa\U00011935\U00011930",
    "+-*/=<>|_.;()'\"#\\x0",
    " \t\n\r\u00a0\u2003\u3000\u0085",
    "'stmdrvleSTRVL\u017f ",
    "\u0f73\u0f75\u0f81\u0f71\u0f72\u0344\u2126\u212b\u1fef",
]
SURROGATES = st.characters(categories=["Cs"])


def texts() -> st.SearchStrategy[str]:
    """Text of several scripts, lone surrogates and anything else mixed in."""
    piece = st.one_of(
        st.sampled_from(SENTENCES).flatmap(_part_of),
        st.sampled_from(ALPHABETS).flatmap(lambda letters: st.text(letters, max_size=12)),
        st.text(max_size=4),
        st.text(SURROGATES, max_size=3),
    )
    return st.lists(piece, max_size=6).map("".join)


def _part_of(sentence: str) -> st.SearchStrategy[str]:
    places = st.integers(0, len(sentence))
    return st.tuples(places, places).map(lambda ends: sentence[min(ends) : max(ends)])


@st.composite
def cut_texts(draw: st.DrawFn) -> list[str]:
    """Deltas of a text that is cut anywhere, also inside surrogate pairs."""
    halves = utf16_units(draw(texts()))
    ends = draw(st.lists(st.integers(0, len(halves)), max_size=12))
    ends = [0, *sorted(ends), len(halves)]
    return ["".join(halves[i:j]) for i, j in itertools.pairwise(ends)]


def utf16_units(text: str) -> list[str]:
    """Split text into its UTF-16 code units."""
    data = text.encode("utf-16-le", "surrogatepass")
    return [data[i : i + 2].decode("utf-16-le", "surrogatepass") for i in range(0, len(data), 2)]
