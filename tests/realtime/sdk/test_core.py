"""The client without I/O: numbers, epochs, and a server that breaks the protocol."""

import dataclasses

import msgpack
import pytest

from realtime.protocol.codec import encode
from realtime.protocol.errors import ProtocolError
from realtime.protocol.frames import AudioFrame, Flags, FrameType, pack_packets
from realtime.protocol.limits import Limits
from realtime.protocol.messages import (
    AudioFormat,
    Flow,
    Generation,
    InputFormat,
    Interrupt,
    Metrics,
    Ping,
    ResponseDone,
    ResponseStarted,
    SessionStarted,
)
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


def core_with(
    started: ResponseStarted = STARTED,
    codec: str = "pcm_s16le",
    input_codec: str = "pcm_s16le",
    rate_hz: int = 24000,
) -> ClientCore:
    core = ClientCore()
    session = SessionStarted(
        session_id="s",
        model="m",
        audio=AudioFormat(
            codec=codec, sample_rate=rate_hz, channels=1, frame_ms=80, frame_samples=1
        ),
        input_audio=InputFormat(codec=input_codec, sample_rate=rate_hz),
        generation=Generation(),
        flow=Flow(),
        stall_flush_ms=0,
        layout="training",
        text_only_user="include",
        limits=Limits(),
        server="t",
    )
    core.begin(encode(session, "msgpack"))
    core.receive(encode(started, "msgpack"))
    return core


def test_messages_are_numbered_from_one():
    core = ClientCore()
    sent = [msgpack.unpackb(core.send(Ping(m=99, t=0))) for _ in range(3)]
    assert [message["m"] for message in sent] == [1, 2, 3]


def test_sound_is_named_by_its_response():
    core = core_with()
    assert core.receive(frame(0)) == Sound("r1", (bytes(4),), 0, 2 / 24, last=False, epoch=0)
    last = core.receive(frame(1, flags=Flags.LAST_OF_RESPONSE))
    assert last == Sound("r1", (bytes([1] * 4),), 2, 2 / 24, last=True, epoch=0)


def test_opus_comes_packet_by_packet_on_its_own_clock():
    core = core_with(codec="opus")
    payload = pack_packets([b"\x08", b"\x09\x0a"])
    packed = AudioFrame(FrameType.OPUS, Flags.PACKED, 4, 0, 0, 1920, 0, payload).pack()
    assert core.receive(packed) == Sound("r1", (b"\x08", b"\x09\x0a"), 0, 40, last=False, epoch=0)


@pytest.mark.parametrize(
    ("codec", "data", "samples"),
    [("mulaw", bytes(1700), [800, 800, 100]), ("pcm_f32le", bytes(400), [100])],
)
def test_user_audio_is_cut_numbered_and_timed(codec, data, samples):
    core = core_with(input_codec=codec, rate_hz=8000)
    sent = [AudioFrame.parse(part) for part in core.user_audio(data) + core.user_audio(data[:4])]
    assert [frame.seq for frame in sent] == list(range(len(sent)))
    assert [frame.samples for frame in sent[:-1]] == samples
    assert sent[-1].pts == sum(samples)
    assert b"".join(frame.payload for frame in sent) == data + data[:4]


@pytest.mark.parametrize(
    ("codec", "data", "words"),
    [("pcm_s16le", b"\1\2\3", "2 bytes; 3 bytes"), ("opus", b"", "at least one byte")],
)
def test_user_audio_that_is_not_what_was_agreed_is_not_sent(codec, data, words):
    core = core_with(input_codec=codec)
    with pytest.raises(ValueError, match=words):
        core.user_audio(data)
    good = b"\xf8\xff\xfe" if codec == "opus" else bytes(2)
    assert AudioFrame.parse(core.user_audio(good)[0]).seq == 0


def test_after_an_interrupt_the_conversations_old_sound_is_dropped():
    core = core_with()
    before = core.receive(frame(0))
    assert not core.is_stale(before.epoch)
    core.send(Interrupt(m=1))
    assert core.is_stale(before.epoch)
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
