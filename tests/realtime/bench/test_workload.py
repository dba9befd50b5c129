"""The workload: frozen by its seed, in the proportions that were asked for."""

from __future__ import annotations

import itertools
import re
import statistics

from realtime.bench.workload import (
    MOST_FRAMES,
    AgentHabits,
    agents,
    arrivals_s,
    bursts_s,
    lines,
    sentences,
)


def test_the_same_seed_says_the_same_at_the_same_times() -> None:
    assert agents(5, 4, seed=1) == agents(5, 4, seed=1) != agents(5, 4, seed=2)
    assert sentences(20, 1) == sentences(20, 1) != sentences(20, 2)
    assert arrivals_s(9, 2.0, 1) == arrivals_s(9, 2.0, 1) != arrivals_s(9, 2.0, 2)


def test_sentences_are_as_long_as_people_speak() -> None:
    texts = sentences(4000, seed=20261)
    assert all(re.fullmatch(r"\S.*\.", text) for text in texts)
    counts = [len(text.split()) for text in texts]
    assert 9 <= statistics.mean(counts) <= 12
    shares = {
        "short": (sum(count <= 2 for count in counts), 0.03),
        "long": (sum(count >= 40 for count in counts), 0.02),
        "odd": (sum(bool(re.search(r"\d|Dr\.|Mr\.|e\.g\.|\"", text)) for text in texts), 0.05),
    }
    for name, (found, share) in shares.items():
        assert abs(found / 4000 - share) < 0.01, name


def test_strangers_come_independently_at_the_rate_asked_for() -> None:
    times = arrivals_s(4000, per_s=5.0, seed=1)
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert min(gaps) >= 0
    assert abs(statistics.mean(gaps) - 0.2) < 0.01
    assert abs(statistics.stdev(gaps) - 0.2) < 0.01  # an exponential's are equal


def test_bursts() -> None:
    assert bursts_s(bursts=3, size=2, every_s=1.5) == (0.0, 0.0, 1.5, 1.5, 3.0, 3.0)


def test_agents_behave_as_their_habits_say() -> None:
    habits = AgentHabits()
    made = agents(1000, 4, seed=3)
    turns = [turn for agent in made for turn in agent.turns]
    assert len(turns) == 4000
    assert all(2.0 <= turn.think_s <= 6.0 for turn in turns)
    assert all(turn.cut_at is None or 0.1 <= turn.cut_at <= 0.8 for turn in turns)
    barged = sum(turn.cut_at is not None and not turn.vanishes for turn in turns)
    assert abs(barged / 4000 - habits.barge_in) < 0.02
    assert abs(sum(any(turn.vanishes for turn in a.turns) for a in made) / 1000 - 0.03) < 0.015
    assert abs(sum(agent.reads_at == 0.3 for agent in made) / 1000 - 0.05) < 0.02
    for turn in turns:
        sizes = [len(delta.text.split()) for delta in turn.deltas]
        assert all(1 <= size <= 4 for size in sizes)
        # The slowest writer needs 1/8 s for a token, the fastest 1/60 s; one pause is up to 1 s.
        spent_s = sum(delta.after_s for delta in turn.deltas)
        assert turn.words / 60 <= spent_s + 1e-9 <= turn.words / 8 + 1.0 + 1e-9
    pauses = sum(
        any(delta.after_s > len(delta.text.split()) / 8 + 1e-9 for delta in turn.deltas)
        for turn in turns
    )
    assert 0.15 <= pauses / 4000 <= 0.31  # some hide behind the pace of a slow writer


def test_lines_name_speakers_and_lengths_where_they_are_asked_for() -> None:
    plain = lines(50, 1)
    assert tuple(line.text for line in plain) == sentences(50, 1)
    assert {(line.speaker, line.frames) for line in plain} == {(None, None)}
    made = lines(4000, 1, range(4000), sized=True)
    assert [line.speaker for line in made] == list(range(4000))
    sizes = [line.frames or 0 for line in made]
    assert (min(sizes) >= 8, max(sizes)) == (True, MOST_FRAMES)
    assert abs(statistics.median(sizes) - 52) < 3
    assert abs(statistics.mean(sizes) - 57) < 3
