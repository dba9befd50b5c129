"""A small generative grammar over text files: {slot}, [optional], (this|that), {2..9}, {noun+s}."""

from __future__ import annotations

import dataclasses
import random
import re
from pathlib import Path

_HERE = Path(__file__).parent
_ONES = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen"),
    *("eighteen", "nineteen"),
)
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_CHOICE = re.compile(r"\(([^()]*)\)|\[([^\[\]]*)\]")
_SLOT = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d+)\.\.(\d+)(#?)")
_MAX_DEPTH = 5
_IRREGULAR = {"child": "children", "knife": "knives", "fish": "fish"}


@dataclasses.dataclass(frozen=True, slots=True)
class Grammar:
    """slots: name -> its alternatives. domains: the templates, those of one subject together."""

    slots: dict[str, list[str]]
    domains: list[list[str]]

    @classmethod
    def load(cls) -> Grammar:
        """Read the grammar beside this file."""
        return cls(_read_slots(_HERE / "slots.txt"), _read_domains(_HERE / "templates.txt"))

    def expand(self, template: str, rng: random.Random, depth: int = 0) -> str:
        """Return `template` with every choice made; KeyError names an unknown slot."""
        while found := _CHOICE.search(template):
            choice, optional = found.groups()
            text = rng.choice(choice.split("|")) if choice is not None else optional
            if choice is None and rng.random() < 0.5:
                text = ""
            template = template[: found.start()] + text + template[found.end() :]
        return _SLOT.sub(lambda slot: self._fill(slot[1], rng, depth), template)

    def _fill(self, slot: str, rng: random.Random, depth: int) -> str:
        if numbers := _RANGE.fullmatch(slot):
            number = rng.randint(int(numbers[1]), int(numbers[2]))
            return str(number) if numbers[3] else number_words(number)
        name, _, ending = slot.partition("+")
        alternatives = self.slots[name]
        if depth >= _MAX_DEPTH:  # the first alternatives are the simple ones
            alternatives = alternatives[:4]
        text = self.expand(rng.choice(alternatives), rng, depth + 1)
        return plural(text) if ending == "s" else text


def number_words(number: int) -> str:
    """Return 0 to 999 in words."""
    if number < 20:
        return _ONES[number]
    if number < 100:
        tens, ones = divmod(number, 10)
        return _TENS[tens - 2] + (f"-{_ONES[ones]}" if ones else "")
    hundreds, rest = divmod(number, 100)
    return f"{_ONES[hundreds]} hundred" + (f" and {number_words(rest)}" if rest else "")


def plural(noun: str) -> str:
    """Return the plural of a regular noun, or of the few others that slots.txt has."""
    if noun in _IRREGULAR:
        return _IRREGULAR[noun]
    if re.search(r"(s|x|ch|sh)$", noun):
        return noun + "es"
    return noun[:-1] + "ies" if re.search(r"[^aeiou]y$", noun) else noun + "s"


def sentence_case(text: str) -> str:
    """Return `text` with its first letter a capital and `a` or `an` as the next word wants it."""
    text = re.sub(r"\b([Aa])n? (?=[\w])", _article, text)
    return re.sub(r"[A-Za-z]", lambda letter: letter[0].upper(), text, count=1)


def _article(found: re.Match[str]) -> str:
    following = found.string[found.end() :].lower()
    vowel = re.match(r"(?!uni|u-|use|usu|euro|one)[aeiou]|hour|honest", following)
    return f"{found[1]}n " if vowel else f"{found[1]} "


def _read_slots(path: Path) -> dict[str, list[str]]:
    slots: dict[str, list[str]] = {}
    for line in _lines(path):
        if not line.startswith(" "):
            name, _, line = line.partition(":")
            slots[name] = []
        slots[name] += _split(line)
    return slots


def _split(line: str) -> list[str]:
    """Split at the bars outside parentheses."""
    return [part.strip() for part in re.split(r"\|(?![^(]*\))", line)]


def _read_domains(path: Path) -> list[list[str]]:
    blocks = path.read_text(encoding="utf-8").split("\n\n")
    domains = [[line for line in block.splitlines() if line[:1] not in "#"] for block in blocks]
    return [domain for domain in domains if domain]


def _lines(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]
