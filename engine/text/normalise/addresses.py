"""Web addresses, e-mail addresses and phone numbers."""

from __future__ import annotations

import re

from engine.text.normalise.numbers import cardinal, spell
from engine.text.normalise.rule import rule

MAX_PATH_CHARS = 40
_ENDINGS = (
    "com|org|net|edu|gov|io|dev|ai|app|co|info|me|tv|us|uk|de|fr|eu|ca|au|in|jp|ch|nl|biz|xyz|tech"
)
_NAME = r"[a-zA-Z0-9](?:[\w-]{0,62})"
_SIGNS = {".": "dot", "-": "dash", "_": "underscore", "+": "plus", "/": "slash", "@": "at"}
_PARTS = re.compile(r"[a-zA-Z]+|\d+|[.\-_+/@]|[^\W\d_]+")


def in_words(text: str) -> str:
    """Say an address: letters as words, signs by name, short numbers as numbers."""
    words = []
    for part in _PARTS.findall(text):
        if part.isdecimal():
            words.append(cardinal(int(part)) if len(part) <= 2 else spell(part))
        else:
            words.append(_SIGNS.get(part, part))
    return " ".join(words)


@rule(rf"[\w.+-]{{1,64}}@{_NAME}(?:\.{_NAME}){{1,5}}")
def email(match: re.Match[str]) -> str | None:
    """name@example.com"""
    return in_words(match.group())


@rule(
    rf"(?:https?://(?:www\.)?|www\.)(?P<host>{_NAME}(?:\.{_NAME}){{0,8}})(?::\d+)?"
    r"(?P<path>/[^\s?#]*)?(?:[?#]\S*)?(?<![.,;:!?'\")\]])",
    whole=False,
)
def url(match: re.Match[str]) -> str | None:
    """https://www.example.com/path?query: the host, and a path that is short"""
    return _host_and_path(match)


@rule(rf"(?P<host>(?:{_NAME}\.){{1,8}}(?:{_ENDINGS}))(?P<path>/[^\s?#]*(?<![.,;:!?'\")\]]))?")
def domain(match: re.Match[str]) -> str | None:
    """example.com/path"""
    return _host_and_path(match)


def _host_and_path(match: re.Match[str]) -> str:
    path = (match["path"] or "").rstrip("/")
    return in_words(match["host"] + (path if len(path) <= MAX_PATH_CHARS else ""))


@rule(
    r"(?:\+\d{1,3}[ .-]?|1[ .-])?(?:\(\d{3}\)[ .-]?|\d{3}[ .-])\d{3}[ .-]\d{4}"
    r"|\+\d{1,3}(?:[ .-]\(?\d{1,4}\)?){2,5}|\+\d{8,15}|\d{3}-\d{4}|0\d{2,4}(?: \d{3,4}){2}"
)
def phone(match: re.Match[str]) -> str | None:
    """+1 (555) 010-4477"""
    groups = re.findall(r"\d+", match.group())
    plus = "plus " if match.group().startswith("+") else ""
    return plus + ", ".join(spell(group) for group in groups)


RULES = (email, url, domain, phone)
