"""What is said, and when: frozen by a seed, so that two servers are asked the same.

A token is a word here: all of them are common enough to be one token of a usual vocabulary.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from random import Random

PREFILL_TOKENS = 12
"""Tokens after which a model can begin to speak, if the text goes on."""

_WORDS = (
    *("time", "water", "people", "house", "river", "city", "train", "table", "morning", "music"),
    *("window", "garden", "doctor", "letter", "winter", "market", "number", "paper", "story"),
    *("small", "quiet", "early", "clear", "simple", "open", "green", "heavy", "warm", "long"),
    *("takes", "finds", "brings", "follows", "leaves", "opens", "carries", "needs", "shows"),
    *("the", "a", "this", "every", "our", "and", "with", "under", "before", "after", "near"),
)
_DETAILS = (
    *("at 7", "in 1984", "for 25 dollars", "on May 3", "about 12%", "Dr. Brown", "Mr. Lee"),
    *("e.g. this one", '"yes"', '"not today"'),
)


MOST_FRAMES = 256
"""Cap of a sized line, as usual benchmarks set it: 20.48 s at 12.5 frames a second."""


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """A request: a text, who says it (None: whoever the server likes), and a cap in frames."""

    text: str
    speaker: int | None = None
    frames: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Delta:
    """A piece of text, and how long its writer thinks before it."""

    after_s: float
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Turn:
    """One reply. `cut_at` is the part of it after which the user barges in, or the client dies."""

    think_s: float
    deltas: tuple[Delta, ...]
    cut_at: float | None = None
    vanishes: bool = False

    @property
    def words(self) -> int:
        """How many words it has."""
        return sum(len(delta.text.split()) for delta in self.deltas)


@dataclasses.dataclass(frozen=True, slots=True)
class Agent:
    """One voice-agent session. `reads_at` is how fast it takes sound, 1 being as it comes."""

    turns: tuple[Turn, ...]
    reads_at: float = 1.0


@dataclasses.dataclass(frozen=True, slots=True)
class AgentHabits:
    """How sessions behave; probabilities are of a turn, but `slow` and `vanish` of a session."""

    think_s: tuple[float, float] = (2.0, 6.0)
    tokens_per_s: tuple[float, float] = (8.0, 60.0)
    delta_tokens: tuple[int, int] = (1, 4)
    pause: float = 0.3
    pause_s: tuple[float, float] = (0.3, 1.0)
    barge_in: float = 0.2
    cut_at: tuple[float, float] = (0.1, 0.8)
    vanish: float = 0.03
    slow: float = 0.05
    slow_reads_at: float = 0.3


def sentence(random: Random) -> str:
    """A sentence of 4 to 18 words; 5 % with digits or quotes, 3 % very short, 2 % very long."""
    kind = random.random()
    if kind < 0.03:
        count = random.randint(1, 2)
    elif kind < 0.05:
        count = random.randint(40, 60)
    else:
        count = round(random.triangular(4, 18, 9))
    words = [random.choice(_WORDS) for _ in range(count)]
    if 0.05 <= kind < 0.10:
        words.insert(random.randint(1, count - 1), random.choice(_DETAILS))
    text = " ".join(words)
    return f"{text[0].upper()}{text[1:]}."


def sentences(count: int, seed: int) -> tuple[str, ...]:
    """The texts of a run."""
    random = Random(seed)
    return tuple(sentence(random) for _ in range(count))


def lines(
    count: int, seed: int, speakers: Sequence[int] | None = None, *, sized: bool = False
) -> tuple[Line, ...]:
    """The requests of a run. `sized` ones say how long they may get, as weights that were never
    trained do not stop: lognormal about 52 frames, with 0.3 % at the cap.
    """
    random = Random(seed + 1)
    frames = [_frames(random) if sized else None for _ in range(count)]
    named = speakers if speakers is not None else [None] * count
    return tuple(map(Line, sentences(count, seed), named, frames))


def _frames(random: Random) -> int:
    if random.random() < 0.003:
        return MOST_FRAMES
    return min(max(round(random.lognormvariate(math.log(52), 0.42)), 8), MOST_FRAMES)


def arrivals_s(count: int, per_s: float, seed: int) -> tuple[float, ...]:
    """When requests come that know nothing of each other: a Poisson process."""
    random, at_s = Random(seed), 0.0
    times = []
    for _ in range(count):
        at_s += random.expovariate(per_s)
        times.append(at_s)
    return tuple(times)


def bursts_s(bursts: int, size: int, every_s: float) -> tuple[float, ...]:
    """When requests come that come `size` at once."""
    return tuple(burst * every_s for burst in range(bursts) for _ in range(size))


def agents(
    count: int, turns: int, seed: int, habits: AgentHabits | None = None
) -> tuple[Agent, ...]:
    """The sessions of a voice-agent run."""
    random, habits = Random(seed), habits or AgentHabits()
    return tuple(_agent(random, turns, habits) for _ in range(count))


def _agent(random: Random, turns: int, habits: AgentHabits) -> Agent:
    dies_in = random.randrange(turns) if random.random() < habits.vanish else None
    slow = random.random() < habits.slow
    made = tuple(_turn(random, number == dies_in, habits) for number in range(turns))
    return Agent(made, habits.slow_reads_at if slow else 1.0)


def _turn(random: Random, vanishes: bool, habits: AgentHabits) -> Turn:
    text = " ".join(sentence(random) for _ in range(random.randint(1, 3)))
    cut = vanishes or random.random() < habits.barge_in
    return Turn(
        think_s=random.uniform(*habits.think_s),
        deltas=_deltas(random, text, habits),
        cut_at=random.uniform(*habits.cut_at) if cut else None,
        vanishes=vanishes,
    )


def _deltas(random: Random, text: str, habits: AgentHabits) -> tuple[Delta, ...]:
    """Cut a text as a language model writes it: a few tokens at a time, with a pause in some."""
    words = [f"{word} " for word in text.split()]
    per_s = random.uniform(*habits.tokens_per_s)
    pieces = []
    while words:
        size = random.randint(*habits.delta_tokens)
        pieces.append(words[:size])
        del words[:size]
    pauses = random.random() < habits.pause and len(pieces) > 1
    pause_before = random.randrange(1, len(pieces)) if pauses else None
    return tuple(
        Delta(
            len(piece) / per_s + (random.uniform(*habits.pause_s) if n == pause_before else 0.0),
            "".join(piece),
        )
        for n, piece in enumerate(pieces)
    )
