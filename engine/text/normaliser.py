"""The text normaliser of the MOSS-TTS pipeline: text as the model saw it in training.

`normalise` tidies Markdown, brackets, arrows, dashes and repeated punctuation, and sets the spaces
between Chinese or Japanese and Latin script. Links, addresses, tags, file names and versions stay
as they are written. Some rules are asymmetric; they are those of the released pipeline.
"""

# ruff: noqa: RUF001  (full-width punctuation is what this is about)

from __future__ import annotations

import re
import unicodedata
from typing import Final

_CJK: Final = "\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f"
_FIRST_SHIELD: Final = 0xF0000
# Private characters stand for what is protected: none is left of the text's own by then.
_SHIELD: Final = "\U000f0000-\U000ffffd"
_MOST_SHIELDS: Final = 0xFFFD

_INVISIBLE: Final = re.compile("[\u200b-\u200d\ufeff]")
_LINK: Final = re.compile(r"\[([^\]\n]+)\]\((https?://[^\s)]+)\)")
_LINE_MARKERS: Final = tuple(
    re.compile(pattern) for pattern in (r"#{1,6}\s+", r">\s+", r"[-*+]\s+", r"\d+[.)]\s+")
)

_PROTECTED: Final = tuple(
    re.compile(pattern)
    for pattern in (
        r"https?://[^\s，。！？；、）】》〉」』]+",
        r"[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+",
        r"(?<![A-Za-z0-9_])@[A-Za-z0-9_]{1,32}",
        r"(?<![A-Za-z0-9_])[ur]/[A-Za-z0-9_]+",
        r"#[^\s#]+",
        r"(?<![A-Za-z0-9_.])\.[A-Za-z][A-Za-z0-9_-]*",
    )
)
_FILE_LIKE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/+:-]*")
_FILE_MARKS: Final = "._/+:-"

_SPACES: Final = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"[ \t\r\f\v]+", " "),
        (rf"(?<=[{_CJK}]) (?=[{_CJK}0-9])", ""),
        (rf"(?<=[0-9]) (?=[{_CJK}])", ""),
        (rf"(?<=[{_CJK}]) ?(?=[0-9_]*[A-Za-z]|[{_SHIELD}])", " "),
        (rf"([A-Za-z][A-Za-z0-9_]*|[{_SHIELD}]) ?(?=[{_CJK}])", r"\1 "),
        (r" +(?=[，。！？；：、”’」』】）》])", ""),
        (r"(?<=[（【「『《“‘]) +", ""),
        (r"(?<=[，。！？；：、]) +", ""),
        (r" +(?=[,.;!?])", ""),
    )
)

_AT_START: Final = r"(?:^|(?<=[。！？!?；;]))"
_HEADING: Final = re.compile(_AT_START + r"(?:【([^】]+)】|〖([^〗]+)〗|『([^』]+)』|「([^」]+)」)")
_TITLE: Final = re.compile(
    rf"{_AT_START}《([^》]+)》(?= ?[{_SHIELD}]| ?[—–―-]{{2,}}|$|[。！？!?；;，,])"
)
_ARROW: Final = re.compile(r"[ \t]*(?:<[-=]+>?|[-=]+>|[→←↔⇒⇐⇔⟶⟵⟷⟹⟸⟺↦↤↪↩])[ \t]*")
_DASHES: Final = re.compile(r"[ \t]*[—–―-]{2,}[ \t]*")

_ELLIPSIS: Final = re.compile(r"\.{3,}|…{2,}")
_STOPS: Final = re.compile(r"[。．]+")
_COMMAS: Final = re.compile(r"[，,]{2,}")
_MARKS: Final = re.compile(r"[！!？?]{2,}")


def normalise(text: str) -> str:
    """Return `text` as the MOSS-TTS pipeline gives it to the model."""
    text = _one_line(_visible(text))
    text, shields = _protect(text)
    text = _set_spaces(text)
    text = _plain_structure(text)
    text = _single_marks(text)
    text = _set_spaces(text)
    return _restore(text, shields).strip()


def _visible(text: str) -> str:
    """Drop what is neither seen nor spoken."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\u3000", " ")
    text = _INVISIBLE.sub("", text)
    return "".join(c for c in text if c in "\n\t " or unicodedata.category(c)[0] != "C")


def _one_line(text: str) -> str:
    """Lines become sentences; their Markdown markers go."""
    text = _LINK.sub(r"\1 \2", text)
    lines = (_without_markers(line.strip()) for line in text.split("\n"))
    return "。".join(line for line in lines if line)


def _without_markers(line: str) -> str:
    for marker in _LINE_MARKERS:
        found = marker.match(line)
        if found is not None:
            line = line[found.end() :]
    return line


def _protect(text: str) -> tuple[str, list[str]]:
    """Put a private character in place of each stretch that must stay as it is written."""
    shields: list[str] = []

    def shield(stretch: str) -> str:
        if len(shields) == _MOST_SHIELDS:
            return stretch
        shields.append(stretch)
        return chr(_FIRST_SHIELD + len(shields) - 1)

    def shield_file(found: re.Match[str]) -> str:
        name = found.group().rstrip(_FILE_MARKS)
        rest = found.group()[len(name) :]
        is_file = any(c.isalpha() for c in name) and any(c in _FILE_MARKS for c in name)
        return (shield(name) if is_file else name) + rest

    for pattern in _PROTECTED:
        text = pattern.sub(lambda found: shield(found.group()), text)
    return _FILE_LIKE.sub(shield_file, text), shields


def _restore(text: str, shields: list[str]) -> str:
    """Undo `_protect`. A stretch may itself hold stretches that were protected before it."""
    for number in reversed(range(len(shields))):
        text = text.replace(chr(_FIRST_SHIELD + number), shields[number])
    return text


def _set_spaces(text: str) -> str:
    for pattern, replacement in _SPACES:
        text = pattern.sub(replacement, text)
    return text


def _plain_structure(text: str) -> str:
    """Say headings, titles, arrows and dashes with commas and full stops."""
    for _ in range(2):  # a heading right after another one is seen in the second round
        text = _HEADING.sub(lambda found: found.group(found.lastindex or 0) + "。", text)
    text = _TITLE.sub(r"\1", text)
    text = _ARROW.sub("，", text)
    return _DASHES.sub("。", text)


def _single_marks(text: str) -> str:
    text = _ELLIPSIS.sub("。", text)
    text = _STOPS.sub("。", text)
    text = _COMMAS.sub("，", text)
    return _MARKS.sub(lambda found: _one_mark(found.group()), text)


def _one_mark(run: str) -> str:
    asks = any(mark in "？?" for mark in run)
    exclaims = any(mark in "！!" for mark in run)
    return "？" * asks + "！" * exclaims
