"""MOSS-TTS-Nano's text clean-up: what is written for the eye becomes what can be read aloud.

Not part of the model; its released applications run it before the tokenizer. It reads Markdown,
arrows, dashes and brackets as punctuation, and closes every text with a Chinese full stop, English
ones too. Control text such as `[pause 1s]` would come out quoted: leave the clean-up off for it.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Literal

Language = Literal["zh", "en"]

_HAN = "㐀-鿿"
_CJK = f"{_HAN}぀-ヿ"  # with kana
_CJK_MARKS = "，。！？；：、（）《》"  # noqa: RUF001
_CLOSERS = "\"'”’)]}）】》」』"  # noqa: RUF001
_FULL_STOP = "。"

_INVISIBLE = re.compile("[\u200b-\u200d\ufeff]")
_LINK = re.compile(r"\[([^\[\]]*)\]\((https?://[^\s()]+)\)")
_LINE_PREFIX = re.compile(r"\s*(?:(?:#{1,6}|>+|[-*+•]|\d+[.)])\s+)*")
_ARROW = re.compile(r"\s*(?:-+>|=+>|<-+|[←→↔⇐⇒⇔➜➡])\s*")
_PROTECTED = re.compile(
    r"""
    https?://[^\s，。！？；：、）】》」』"]+      # URLs
    | [\w.+-]+@[\w-]+(?:\.[\w-]+)+                # e-mail addresses
    | (?<![\w@])@[A-Za-z0-9_]+                    # mentions
    | (?<![\w/])[ur]/[A-Za-z0-9_]+                # users and groups of forums
    | (?<![\w#])\#[A-Za-z0-9_]+                   # tags
    | (?<![\w.])\.[A-Za-z][A-Za-z0-9_]*           # names that begin with a dot
    | (?<![A-Za-z0-9_])(?=[A-Za-z0-9_./+:-]*[A-Za-z])
      [A-Za-z0-9_]+(?:[./+:-][A-Za-z0-9_]+)+      # files, versions, compounds
    """,  # noqa: RUF001
    re.VERBOSE,
)
_FIRST_PLACE = 0xF0000  # private use: no such character is left when tokens are protected
_PLACE = "\U000f0000-\U000ffffd"
_MOST_PLACES = 0xFFFD
_LATIN = f"A-Za-z{_PLACE}"

_PUNCTUATION = [
    (re.compile(r"[\[{【〖『「]([^\[\]{}【】〖〗『』「」]*)[\]}】〗』」]"), r'"\1"'),
    (re.compile(r"(?<!\w)《([^《》]*)》(?!\w)"), r"\1"),
    (re.compile("[-–—―]{2,}"), _FULL_STOP),  # noqa: RUF001
    (re.compile(r"\.{3,}|…+"), _FULL_STOP),
    (re.compile("[!！]{2,}"), "！"),  # noqa: RUF001
    (re.compile("[?？]{2,}"), "？"),  # noqa: RUF001
    (re.compile("[?？!！]{2,}"), "？！"),  # noqa: RUF001
    (re.compile("。{2,}"), _FULL_STOP),
    (re.compile("，{2,}"), "，"),  # noqa: RUF001
]
_SPACES = [
    (re.compile(r"\s+"), " "),
    (re.compile(f"(?<=[{_CJK}]) (?=[{_CJK}0-9])|(?<=[0-9]) (?=[{_CJK}])"), ""),
    (re.compile(f"(?<=[{_CJK}])(?=[{_LATIN}])|(?<=[{_LATIN}])(?=[{_CJK}])"), " "),
    (re.compile(f" ?([{_CJK_MARKS}]) ?"), r"\1"),
    (re.compile(r" (?=[,.;!?])"), ""),
]
_HYPHEN = re.compile(r"([^\s-])(\s*)-(\s*)(?=([^\s-]))")
_BEFORE_MINUS = "=:+*/,(，：；（【[{"  # noqa: RUF001


def clean(text: str) -> str:
    """Return `text` on one line, closed with punctuation; a blank text is empty."""
    text = _join_lines(_LINK.sub(r"\1 \2", _visible(text)))
    text = _ARROW.sub("，", text)  # noqa: RUF001
    text, kept = _protect(text)
    text = text.replace("_", " ")
    for pattern, by in _PUNCTUATION + _SPACES:
        text = pattern.sub(by, text)
    return _closed(_restore(text.strip(), kept))


def language(text: str, *, english_voice: bool = False) -> Language:
    """Which rules a text is normalised by; a voice counts only where no letter tells."""
    if re.search(f"[{_HAN}]", text):
        return "zh"
    return "en" if re.search("[A-Za-z]", text) or english_voice else "zh"


def spell_hyphens(text: str) -> str:
    """Leave those hyphens to a Chinese number reader that mean minus, or join numbers and dates.

    Between Chinese characters a hyphen becomes a comma, elsewhere inside a text a space.
    """
    return _HYPHEN.sub(_spell_hyphen, text)


def _spell_hyphen(match: re.Match[str]) -> str:
    before, space, space_after, after = match.groups()
    is_cjk = re.match(f"[{_HAN}]", before) is not None
    if after.isdigit() and not space_after:
        if is_cjk or (before.isdigit() and not space):
            return before + "-"
        if before in _BEFORE_MINUS:
            return f"{before}{space}-"
    if is_cjk and re.match(f"[{_HAN}]", after):
        return before + "，"  # noqa: RUF001
    return before + " "


def _visible(text: str) -> str:
    """Drop what cannot be seen, and use one kind of line end and of space."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\u3000", " ")
    text = _INVISIBLE.sub("", text)
    return "".join(
        char for char in text if char in "\n\t " or not unicodedata.category(char).startswith("C")
    )


def _join_lines(text: str) -> str:
    """Lines without their Markdown prefixes become sentences."""
    lines = [_LINE_PREFIX.sub("", line, count=1).strip() for line in text.split("\n")]
    lines = [line for line in lines if line]
    return " ".join([_closed(line) for line in lines[:-1]] + lines[-1:])


def _protect(text: str) -> tuple[str, list[str]]:
    """Put one private character in the place of each token that must stay as it is."""
    kept: list[str] = []

    def keep(match: re.Match[str]) -> str:
        if len(kept) == _MOST_PLACES:
            return match.group()
        kept.append(match.group())
        return chr(_FIRST_PLACE + len(kept) - 1)

    return _PROTECTED.sub(keep, text), kept


def _restore(text: str, kept: list[str]) -> str:
    return re.sub(f"[{_PLACE}]", lambda match: kept[ord(match.group()) - _FIRST_PLACE], text)


def _closed(text: str) -> str:
    """The text with a full stop, unless punctuation stands before its closing quotes."""
    body = text.rstrip(_CLOSERS)
    if not body or unicodedata.category(body[-1]).startswith("P"):
        return text
    return text + _FULL_STOP
