"""What was sent last comes again after a loss: in order, once, and what is gone is told."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from realtime.protocol.errors import ProtocolError
from realtime.protocol.frames import AudioFrame, Flags, FrameType
from realtime.protocol.messages import Gap, Resume
from realtime.session import ring as ring_module
from realtime.session.ring import ReplayRing, Sent, SentFrame


def frame(stream: int, seq: int, payload: bytes = b"\0\0") -> AudioFrame:
    return AudioFrame(FrameType.PCM_S16LE, Flags.NONE, stream, seq, seq, 1, 0, payload)


class Wire:
    """A ring and what it was given: `("m", n)` and `(stream, seq)`."""

    def __init__(self) -> None:
        self.ring = ReplayRing()
        self.sent: list[tuple[Any, int]] = []
        self.n = 0
        self.seq: dict[int, int] = {}

    def message(self, size: int = 10) -> None:
        self.n += 1
        self.ring.add_message(self.n, bytes(size))
        self.sent.append(("m", self.n))

    def sound(self, stream: int, length_ms: float = 80, size: int = 2) -> None:
        seq = self.seq[stream] = self.seq.get(stream, -1) + 1
        self.ring.add_frame(f"r{stream}", frame(stream, seq, bytes(size)), length_ms)
        self.sent.append((stream, seq))

    def resume(self, received: int) -> Resume:
        """What a client says that got the first `received` entries."""
        got, last, n = self.sent[:received], {}, 0
        for kind, number in got:
            if kind == "m":
                n = number
            else:
                last[kind] = number
        return Resume(token="t", received=tuple(last.items()), after_event=n)


def names(entries: list[Sent]) -> list[tuple[Any, int]]:
    return [
        (e.frame.stream, e.frame.seq) if isinstance(e, SentFrame) else ("m", e.n) for e in entries
    ]


entries = st.lists(st.sampled_from(["m", 1, 2, 3]), max_size=60)


@given(kinds=entries, share=st.floats(0, 1))
def test_whatever_arrived_the_rest_comes_again_in_order(kinds: list[Any], share: float) -> None:
    wire = Wire()
    for kind in kinds:
        wire.message() if kind == "m" else wire.sound(kind)
    received = int(share * len(kinds))
    missed, gaps = wire.ring.missed(wire.resume(received))
    assert names(missed) == wire.sent[received:]
    assert gaps == ()
    assert all(Flags.REPLAYED in e.frame.flags for e in missed if isinstance(e, SentFrame))


@given(kinds=entries, share=st.floats(0, 1))
def test_sound_that_is_gone_is_told_to_those_who_lack_it(kinds: list[Any], share: float) -> None:
    wire = Wire()
    for kind in kinds:
        wire.message() if kind == "m" else wire.sound(kind, length_ms=1000)
    received = int(share * len(kinds))
    missed, gaps = wire.ring.missed(wire.resume(received))
    told = {(gap.stream, seq) for gap in gaps for seq in range(gap.first_seq, gap.last_seq + 1)}
    expected = wire.sent[received:]
    assert names(missed) == [entry for entry in expected if entry not in told]
    assert told <= set(expected)
    held = [entry for entry in wire.sent if entry[0] != "m"][-10:]
    assert told.isdisjoint(held)


def test_a_gap_names_its_frames() -> None:
    wire = Wire()
    wire.message()
    for _ in range(14):
        wire.sound(7, length_ms=1000)
    missed, gaps = wire.ring.missed(Resume(token="t", received=((7, 1),), after_event=1))
    assert gaps == (Gap(stream=7, first_seq=2, last_seq=3),)
    assert names(missed) == [(7, seq) for seq in range(4, 14)]


def test_sound_is_bounded_by_bytes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring_module, "MAX_AUDIO_BYTES", 100)
    wire = Wire()
    for _ in range(20):
        wire.sound(1, size=30)
    missed, gaps = wire.ring.missed(wire.resume(0))
    assert len(missed) == 3
    assert gaps == (Gap(stream=1, first_seq=0, last_seq=16),)


def test_dropped_sound_is_neither_sent_nor_missed() -> None:
    wire = Wire()
    for _ in range(14):
        wire.sound(1, length_ms=1000)
        wire.sound(2, length_ms=1)
    wire.ring.drop(1)
    missed, gaps = wire.ring.missed(wire.resume(0))
    assert {e.frame.stream for e in missed if isinstance(e, SentFrame)} == {2}
    assert [gap.stream for gap in gaps] == [2]


def test_lost_messages_are_refused_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring_module, "MAX_MESSAGE_BYTES", 100)
    wire = Wire()
    wire.sound(1)
    for _ in range(20):
        wire.message(30)
    with pytest.raises(ProtocolError, match="event 17 is no longer held") as refused:
        wire.ring.missed(Resume(token="t", after_event=16))
    assert refused.value.code == "resume_rejected"
    missed, gaps = wire.ring.missed(Resume(token="t", after_event=17))
    assert names(missed) == [("m", 18), ("m", 19), ("m", 20)]
    assert gaps == ()


def test_a_message_larger_than_the_ring_is_held_until_the_next() -> None:
    wire = Wire()
    wire.message(ring_module.MAX_MESSAGE_BYTES + 1)
    missed, _ = wire.ring.missed(wire.resume(0))
    assert names(missed) == [("m", 1)]


def test_claims_from_the_future_get_nothing() -> None:
    wire = Wire()
    wire.message()
    wire.sound(1)
    assert wire.ring.missed(Resume(token="t", received=((1, 10**9),), after_event=10**15)) == (
        [],
        (),
    )
