"""The ordering guarantees of the protocol, one table a rule; `test_ordering` tries them at random.

(1) messages apply in order, (2) a response's own order, (3) `response.done` is a barrier, (4) an
interrupt ends the old epoch, (5) the conversation's responses never interleave, (6) an item is
created when its response is done.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from engine.api import Counts, Done, Frames, Parked, Refused, Resumed, Segment
from engine.fake import FakeScript
from realtime.protocol.frames import Flags
from tests.realtime.session.conftest import MODEL, Sound

LAST = ("response.segment", "sound", "response.done")
TEXT = "The weather is lovely, and the trains are running on time today."


def play(talk, *steps) -> None:
    """Go through a script: `(type, response_id, fields...)` messages and numbers of ticks."""
    for step in steps:
        if isinstance(step, int):
            talk.step(step)
        else:
            kind, response_id, *rest = step
            fields = {"response_id": response_id} if response_id else {}
            talk.say(kind, **fields, **(rest[0] if rest else {}))


def start(response_id: str, **fields):
    return ("response.start", response_id, {"text": TEXT, "end": True} | fields)


def kinds_of(talk, response_id: str) -> list[str]:
    """What the wire carried of a response, runs of sound as one."""
    kinds: list[str] = []
    for entry in talk.wire:
        if getattr(entry, "response_id", None) == response_id:
            kind = "sound" if isinstance(entry, Sound) else entry.type
            kinds += [kind] if kinds[-1:] != [kind] else []
    return kinds


@pytest.mark.parametrize(
    ("steps", "codes"),
    [
        ([("response.text", "r1", {"delta": "x"})], ["unknown_response"]),
        ([("response.end", "r1")], ["unknown_response"]),
        ([start("r1"), ("response.text", "r1", {"delta": "x"})], ["unknown_response"]),
        ([start("r1"), ("response.end", "r1")], ["unknown_response"]),
        ([start("r1"), 300, ("response.text", "r1", {"delta": "x"})], ["unknown_response"]),
        ([start("r1"), ("response.cancel", "r1"), ("response.text", "r1", {"delta": "x"})], []),
        ([start("r1"), ("interrupt", ""), ("response.flush", "r1")], []),
        ([start("r1"), 300, ("response.cancel", "r1")], []),
        ([start("r1"), start("r1")], ["duplicate_response"]),
        ([start("r1"), ("response.cancel", "r1"), start("r1")], ["duplicate_response"]),
    ],
)
def test_rule_1_messages_apply_in_the_order_they_come(talk, steps, codes):
    play(talk, *steps)
    assert [error.code for error in talk.of("error")] == codes


@pytest.mark.parametrize(
    ("steps", "kinds"),
    [
        ([start("r1"), 300], ["response.started", "sound", *LAST]),
        ([start("r1", text=" "), 9], ["response.started", *LAST]),
        ([start("r1"), 20, ("interrupt", "")], ["response.started", "sound", "response.done"]),
        ([start("r1"), ("interrupt", "")], ["response.started", "response.done"]),
        ([start("r0"), start("r1"), 1, ("interrupt", "")], ["response.started", "response.done"]),
        (
            [start("r1", end=False), 300, ("response.end", "r1"), 300],
            [
                *("response.started", "sound", "response.stalled", "response.resumed", "sound"),
                *LAST,
            ],
        ),
    ],
)
def test_rule_2_a_response_has_one_beginning_and_one_end(talk, steps, kinds):
    play(talk, *steps)
    assert kinds_of(talk, "r1") == kinds
    sounds = talk.sound("r1")
    assert [Flags.FIRST in s.flags for s in sounds] == [n == 0 for n in range(len(sounds))]
    if talk.of("response.done")[-1].status == "completed":
        lasts = [Flags.LAST_OF_RESPONSE in s.flags for s in sounds]
        assert lasts == [n == len(sounds) - 1 for n in range(len(sounds))]


def late_events(row: int):
    codes, pcm = np.zeros((1, 16), np.uint16), np.zeros((1920, 1), np.float32)
    yield Frames(row, 50, codes, np.ones(1, bool), pcm, False)
    yield Parked(row, "flow")
    yield Resumed(row, "flow")
    yield Segment(row, 0, 51, 5, "eos")
    yield Refused(row, "overloaded", "late", 0)
    yield Done(row, "completed", "", Counts())


@pytest.mark.parametrize(
    ("script", "steps", "status"),
    [
        ({}, [start("r1"), 300], "completed"),
        ({}, [start("r1"), 20, ("response.cancel", "r1")], "cancelled"),
        ({}, [start("r1"), 20, ("interrupt", "")], "cancelled"),
        ({}, [start("r1"), ("interrupt", "")], "cancelled"),
        ({"fail_after_frames": 5}, [start("r1"), 20], "failed"),
        ({"refuse": "overloaded"}, [start("r1"), 20], "failed"),
        ({"never_end": True}, [start("r1", generation={"max_audio_s": 1}), 20], "incomplete"),
    ],
)
def test_rule_3_nothing_of_a_response_comes_after_its_done(new_talk, script, steps, status):
    talk = new_talk(script=FakeScript(model=MODEL, **script))
    talk.say("session.start")
    play(talk, *steps)
    (done,) = talk.of("response.done")
    assert done.status == status
    length = len(talk.wire)
    for event in late_events(100):
        talk.event(event)
    talk.say("interrupt")
    talk.say("response.cancel", response_id="r1")
    talk.say("playback", response_id="r1", played_ms=80)
    talk.wait(70_000)
    after = [entry for entry in talk.wire[length:] if getattr(entry, "response_id", None)]
    assert after == []


@pytest.mark.parametrize("frames", [0, 1, 20, 300])
@pytest.mark.parametrize("queued", [0, 2])
@pytest.mark.parametrize("on_the_wire", [0, 1, 1000])
def test_rule_4_after_an_interrupt_only_the_dones_are_old(talk, frames, queued, on_the_wire):
    talk.instant = False
    play(talk, start("r0"), *(start(f"q{n}") for n in range(queued)), frames)
    talk.drain(on_the_wire)
    length = len(talk.wire)
    play(talk, ("interrupt", ""), start("r1"), 30)
    talk.drain()
    sounds = [entry for entry in talk.wire[length:] if isinstance(entry, Sound)]
    assert sounds
    assert {(sound.epoch, sound.response_id) for sound in sounds} == {(1, "r1")}
    dones = [m.response_id for m in talk.of("response.done")]
    assert dones == ["r0", *(f"q{n}" for n in range(queued))]


@pytest.mark.parametrize(
    ("contexts", "interleave"),
    [
        (("conversation", "conversation"), False),
        (("conversation", "none"), True),
        (("none", "none"), True),
    ],
)
def test_rule_5_only_what_is_beside_the_conversation_interleaves(talk, contexts, interleave):
    play(talk, *(start(f"r{n}", context=context) for n, context in enumerate(contexts)), 600)
    order = [entry.response_id for entry in talk.wire if isinstance(entry, Sound)]
    changes = sum(a != b for a, b in itertools.pairwise(order))
    assert (changes > 1) == interleave
    assert len({entry.stream for entry in talk.wire if isinstance(entry, Sound)}) == 2


@pytest.mark.parametrize(
    ("steps", "messages"),
    [
        ([start("r1"), 300], ["response.done", "item.created"]),
        (
            [start("r1"), 60, ("interrupt", "", {"played": {"response_id": "r1", "ms": 2000}})],
            ["response.done", "item.created", "item.truncated"],
        ),
        ([start("r1"), ("interrupt", "")], ["response.done"]),
        ([start("r1", commit=False), 300], ["response.done"]),
        ([start("r1", context="none"), 300], ["response.done"]),
    ],
)
def test_rule_6_an_item_is_created_when_its_response_is_done(talk, steps, messages):
    play(talk, *steps)
    ends = ("response.done", "item.created", "item.truncated")
    assert [m.type for m in talk.messages() if m.type in ends] == messages
    for created in talk.of("item.created"):
        assert created.item.audio_ms <= talk.of("response.done")[0].sent_ms
