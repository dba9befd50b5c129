"""Texts of several speakers for MOSS-TTSD: each turn begins with its speaker's tag, `[S1]` on."""

# ruff: noqa: RUF001  (full-width punctuation is what this is about)

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

_BEFORE_TAG: Final = re.compile(r"(?=\[S\d+\])")
_TAG: Final = re.compile(r"\[S\d+\]")
_BARE_TAG: Final = re.compile(r"\[(\d+)\]")

_DROPPED: Final = str.maketrans("", "", "【】《》（）『』「」'\"-_“”～~‘’")
_LAUGHTER: Final = (
    (re.compile("哈{2,}"), "[笑]"),
    (re.compile(r"\bha(?:\s*ha)+\b", re.IGNORECASE), "[laugh]"),
)
_BREAKS: Final = re.compile(r"——|……|\.\.\.|[⸺―—…；：、]")
_ASCII_BREAKS: Final = re.compile("[;:]")
_RUN: Final = re.compile(r"([，。？！,.?!])[，。？！,.?!]+")


def normalise_dialogue(text: str) -> str:
    """Return a dialogue in the punctuation that the model saw most (optional in its pipeline).

    Turns of the same speaker that follow each other become one.
    """
    text = _BARE_TAG.sub(r"[S\1]", text).replace("\n", " ")
    return _join((tag, _tidy(said)) for tag, said in _turns(text))


def merge_turns(text: str) -> str:
    """Drop the tag of a turn that follows one of the same speaker, and the space around turns."""
    return _join(_turns(text))


def with_transcripts(text: str, transcripts: Mapping[int, str]) -> str:
    """Put before a dialogue what its speakers say in the audio that it continues.

    `transcripts` maps a speaker's number, from 1, to the transcript of that speaker's clip.
    """
    spoken = ""
    for speaker, transcript in sorted(transcripts.items()):
        tag, said = f"[S{speaker}]", transcript.strip()
        spoken += said if said.startswith(tag) else tag + said
    return merge_turns(spoken + text)


def speakers(text: str) -> set[int]:
    """Numbers of the speakers that a dialogue names."""
    return {int(tag[2:-1]) for tag in _TAG.findall(text)}


def _turns(text: str) -> Iterator[tuple[str, str]]:
    """Yield the tag (may be empty) and the words of each turn, without space around them."""
    for turn in _BEFORE_TAG.split(text):
        found = _TAG.match(turn)
        tag = found.group() if found is not None else ""
        yield tag, turn[len(tag) :].strip()


def _join(turns: Iterator[tuple[str, str]]) -> str:
    joined, speaker = "", ""
    for tag, said in turns:
        joined += said if tag == speaker else tag + said
        speaker = tag
    return joined


def _tidy(said: str) -> str:
    said = said.translate(_DROPPED)
    for laughter, token in _LAUGHTER:
        said = laughter.sub(token, said)
    said = _ASCII_BREAKS.sub(",", _BREAKS.sub("，", said)).strip()
    said = _RUN.sub(r"\1", said)
    if len(said) < 2:
        return said
    end = {"，": "。", ",": "."}.get(said[-1], said[-1])
    return said[:-1].replace("。", "，") + end
