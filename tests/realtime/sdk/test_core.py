"""The client without I/O: numbers, epochs, and a server that breaks the protocol."""

import dataclasses

import msgpack
import pytest

from realtime.protocol.codec import encode
from realtime.protocol.errors import ProtocolError
from realtime.protocol.frames import AudioFrame, Flags, FrameType
from realtime.protocol.messages import Interrupt, Metrics, Ping, ResponseDone, ResponseStarted
from realtime.sdk.core import ClientCore, Sound

STARTED = ResponseStarted(
    n=1,
    response_id="r1",
    item_id="i1",
    stream=4,
    position=0,
    context="conversation",
    epoch=0,
    seed=1,
)


def frame(seq: int, epoch: int = 0, flags: Flags = Flags.NONE) -> bytes:
    return AudioFrame(
        FrameType.PCM_S16LE, flags, 4, seq, 2 * seq, 2, epoch, bytes([seq] * 4)
    ).pack()


def core_with(started: ResponseStarted = STARTED) -> ClientCore:
    core = ClientCore()
    core.receive(encode(started, "msgpack"))
    return core


def test_messages_are_numbered_from_one():
    core = ClientCore()
    sent = [msgpack.unpackb(core.send(Ping(m=99, t=0))) for _ in range(3)]
    assert [message["m"] for message in sent] == [1, 2, 3]


def test_sound_is_named_by_its_response():
    core = core_with()
    assert core.receive(frame(0)) == Sound("r1", bytes(4), 0, last=False)
    last = core.receive(frame(1, flags=Flags.LAST_OF_RESPONSE))
    assert last == Sound("r1", bytes([1] * 4), 2, last=True)


def test_after_an_interrupt_the_conversations_old_sound_is_dropped():
    core = core_with()
    assert core.receive(frame(0)) is not None
    core.send(Interrupt(m=1))
    assert core.receive(frame(1)) is None
    assert core.receive(frame(2, epoch=1)) is not None


def test_an_interrupt_leaves_sound_outside_the_conversation_alone():
    core = core_with(dataclasses.replace(STARTED, context="none"))
    core.send(Interrupt(m=1))
    assert core.receive(frame(0)) is not None


def test_a_lost_frame_is_noticed():
    core = core_with()
    core.receive(frame(0))
    with pytest.raises(ProtocolError, match="frame 2 came, 1 was awaited"):
        core.receive(frame(2))


def test_sound_after_the_end_is_noticed():
    core = core_with()
    done = ResponseDone(
        n=2, response_id="r1", status="completed", audio_ms=0, sent_ms=0, metrics=Metrics()
    )
    assert core.receive(encode(done, "msgpack")) == done
    with pytest.raises(ProtocolError, match="unknown stream 4"):
        core.receive(frame(0))


def test_a_message_of_a_later_version_is_ignored():
    assert ClientCore().receive(msgpack.packb({"type": "session.sparkled", "n": 1})) is None
