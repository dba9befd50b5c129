"""The ordering guarantees of the protocol, under any interleaving of client, engine and socket."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter, defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.api import Cancel, End, Feed, Flush, Open, Played, Sent
from engine.fake import FAKE_MODEL, FakeScript
from realtime.protocol.frames import Flags
from realtime.protocol.limits import Limits
from realtime.session.settings import SessionConfig

WHICH = st.sampled_from([0, 0, 0, 1, 1, 2, 5])  # the youngest response, the one before...
LONG = "A long sentence, indeed. " * 3
TEXTS = st.sampled_from(["Hello there. ", "so ", "x", " ", "\U0001f44b", LONG])
STARTS = st.tuples(
    st.just("start"),
    st.sampled_from(["conversation", "conversation", "none"]),
    st.none() | TEXTS,
    st.booleans(),
)
ACTIONS = st.one_of(
    STARTS,
    STARTS,
    st.tuples(st.just("text"), WHICH, TEXTS),
    st.tuples(st.just("flush"), WHICH),
    st.tuples(st.just("end"), WHICH),
    st.tuples(st.just("step"), st.integers(1, 25)),
    st.tuples(st.just("step"), st.integers(1, 25)),
    st.tuples(st.just("cancel"), WHICH, st.none() | st.integers(0, 4000)),
    st.tuples(st.just("interrupt"), st.none() | WHICH, st.integers(0, 4000)),
    st.tuples(
        st.just("playback"), WHICH, st.integers(0, 4000), st.sampled_from(["playing", "done"])
    ),
    st.tuples(st.just("item")),
    st.tuples(st.just("truncate"), WHICH, st.integers(0, 3000)),
    st.tuples(st.just("drain"), st.integers(1, 20)),
    st.tuples(st.just("wait"), st.sampled_from([50, 400, 900, 900, 70_000])),
)
OPENINGS = st.sampled_from(
    [
        [],
        [("start", "conversation", LONG, True), ("start", "conversation", LONG, True), ("step", 8)],
        [("start", "none", LONG, True), ("start", "conversation", LONG, False), ("step", 30)],
    ]
)
SCRIPTS = st.builds(
    FakeScript,
    model=st.just(dataclasses.replace(FAKE_MODEL, n_vq=16, max_grid_rows=700)),
    frames_per_id=st.integers(1, 3),
    tail_frames=st.integers(0, 4),
    chunk_ramp_frames=st.sampled_from([(1,), (1, 4, 15)]),
    fail_after_frames=st.none() | st.integers(1, 40),
)


def act(talk, action) -> None:
    ids = [m.response_id for m in talk.of("response.started")] or ["none yet"]

    def which(back: int) -> str:
        return ids[-1 - back % len(ids)]

    match action:
        case ("start", context, text, end):
            fields = {"text": text} if text else {}
            response_id = f"r{len(talk.asked)}"
            talk.asked.append(response_id)
            talk.say("response.start", response_id=response_id, context=context, end=end, **fields)
        case ("text", back, text):
            talk.say("response.text", response_id=which(back), delta=text)
        case (("flush" | "end") as kind, back):
            talk.say(f"response.{kind}", response_id=which(back))
        case ("cancel", back, played_ms):
            position = {} if played_ms is None else {"played_ms": played_ms}
            talk.say("response.cancel", response_id=which(back), **position)
        case ("interrupt", back, ms):
            played = {} if back is None else {"played": {"response_id": which(back), "ms": ms}}
            talk.interrupted_at.append(len(talk.wire))
            talk.say("interrupt", **played)
        case ("playback", back, played_ms, state):
            talk.say("playback", response_id=which(back), played_ms=played_ms, state=state)
        case ("item",):
            talk.say("item.create", item={"role": "user", "text": "ok"})
        case ("truncate", back, ms):
            created = [m.item.id for m in talk.of("item.created")] or ["none yet"]
            item_id = created[-1 - back % len(created)]
            talk.say("item.truncate", item_id=item_id, audio_end_ms=ms)
        case ("step", ticks):
            talk.step(ticks)
        case ("drain", entries):
            talk.drain(entries)
        case ("wait", ms):
            talk.wait(ms)


@given(
    SCRIPTS,
    st.sampled_from(["ack", "none"]),
    st.booleans(),
    OPENINGS,
    st.lists(ACTIONS, min_size=30, max_size=60),
)
@pytest.mark.slow
@settings(max_examples=200, deadline=None)
def test_any_interleaving_keeps_the_order(
    new_talk, script, mode, instant, opening, actions
) -> None:
    talk = new_talk(SessionConfig(limits=Limits(history_items=8)), script)
    talk.asked, talk.interrupted_at, talk.instant = [], [], instant
    talk.say("session.start", flow={"mode": mode, "max_ahead_ms": 2000})
    for action in [*opening, *actions]:
        act(talk, action)
    talk.instant = True
    talk.drain()
    check_wire(talk)
    check_engine(talk)
    talk.say("session.close")
    check_wire(talk)
    check_engine(talk)
    check_all_is_done(talk)


def check_wire(talk) -> None:
    messages = talk.messages()
    assert [m.n for m in messages] == list(range(1, len(messages) + 1))
    started, done, current = {}, {}, None
    sound = defaultdict(list)
    for index, entry in enumerate(talk.wire):
        kind = getattr(entry, "type", "sound")
        response_id = getattr(entry, "response_id", None)
        if kind in ("error", "warning"):
            continue
        if kind == "response.started":
            assert response_id not in started
            started[response_id] = entry
        elif response_id is not None:
            assert response_id in started, entry
            assert response_id not in done, ("the barrier", entry)
        if kind == "sound":
            in_conversation = started[response_id].context == "conversation"
            if in_conversation:
                epoch = sum(index >= at for at in talk.interrupted_at)
                assert entry.epoch == epoch, "nothing of an old epoch after an interrupt"
                assert current in (None, response_id), "responses do not interleave"
                current = response_id
            check_flags(sound[response_id], entry)
            sound[response_id].append(entry)
        if kind == "response.done":
            done[response_id] = entry
            current = None if current == response_id else current
            check_done(entry, sound[response_id], started[response_id])
        if kind == "item.created" and entry.item.role == "assistant":
            owner = next(s for s in started.values() if s.item_id == entry.item.id)
            assert owner.response_id in done
            assert entry.item.audio_ms <= done[owner.response_id].sent_ms


def check_flags(before, sound) -> None:
    assert (Flags.FIRST in sound.flags) == (not before)
    assert not any(Flags.LAST_OF_RESPONSE in earlier.flags for earlier in before)


def check_done(done, sound, started) -> None:
    sent_ms = sum(s.samples for s in sound) / 24
    assert done.sent_ms == sent_ms
    assert done.audio_ms >= sent_ms
    if done.status == "cancelled":
        assert 0 <= done.heard_ms <= sent_ms
    else:
        assert Flags.LAST_OF_RESPONSE in sound[-1].flags
        assert done.audio_ms == sent_ms
        assert done.heard_ms is None
    if started.context == "none":
        assert done.status != "cancelled" or done.reason is None


def check_engine(talk) -> None:
    rows = defaultdict(list)
    for command in talk.commands:
        if isinstance(command, Open | Feed | Flush | End | Cancel | Sent | Played):
            rows[command.row].append(command)
    for row, commands in rows.items():
        kinds = [type(c) for c in commands]
        counts = Counter(kinds)
        assert kinds[0] is Open
        assert row in talk.listened
        assert counts[Open] == 1
        assert counts[Cancel] <= 1
        assert counts[End] <= 1
        text = [kind for kind in kinds if kind in (Feed, Flush, End)]
        assert all(kind is not End for kind in text[:-1]), "nothing after the end"
        for earlier, later in itertools.pairwise(text):
            assert (earlier, later) != (Flush, Flush), "no segment without text"
        if Cancel in counts:
            after = kinds[kinds.index(Cancel) + 1 :]
            assert after == [], "nothing after a cancel"
        for credit in (Sent, Played):
            samples = [c.samples for c in commands if isinstance(c, credit)]
            assert samples == sorted(samples)


def check_all_is_done(talk) -> None:
    started = [m.response_id for m in talk.of("response.started")]
    assert sorted(m.response_id for m in talk.of("response.done")) == sorted(started)
    assert len(set(started)) == len(started)
    talk.step(5)
    assert not talk.engine._running
    assert not talk.engine._queued


@given(
    st.lists(
        st.sampled_from(
            ["Hello", " there", ", ", "\U0001f44b", "\ud83d", "\udc4b", "\n", "x" * 300]
        ),
        min_size=1,
        max_size=30,
    ),
    st.integers(0, 200),
)
@pytest.mark.slow
@settings(max_examples=60, deadline=None)
def test_no_word_is_lost_or_spoken_twice(new_talk, deltas, flush_after) -> None:
    talk = new_talk()
    talk.say("session.start")
    talk.say("response.start", response_id="r1")
    for index, delta in enumerate(deltas):
        talk.say("response.text", response_id="r1", delta=delta)
        if index == flush_after:
            talk.say("response.flush", response_id="r1")
            talk.run()
    talk.say("response.end", response_id="r1")
    talk.run()
    cut = flush_after + 1
    segments = ["".join(deltas[:cut]), "".join(deltas[cut:])]
    joined = [
        s.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace") for s in segments
    ]
    expected = [s for s in joined if s.strip()]
    assert talk.fed() == [i for s in expected for i in talk.tokens(s)]
    created = talk.of("item.created")
    assert "".join(m.item.text for m in created) == "".join(expected)
