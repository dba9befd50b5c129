"""The client without I/O, over more than one socket: what it asks for, skips, repeats and tells."""

from __future__ import annotations

import dataclasses

import msgpack
import pytest

from realtime.protocol.codec import decode_client, encode
from realtime.protocol.errors import ProtocolError
from realtime.protocol.frames import AudioFrame, Flags, FrameType
from realtime.protocol.limits import DEFAULT_LIMITS
from realtime.protocol.messages import (
    AudioFormat,
    Error,
    Flow,
    Gap,
    Generation,
    InputFormat,
    Interrupt,
    Ping,
    Pong,
    ResponseDone,
    ResponseStarted,
    SessionStarted,
)
from realtime.protocol.messages import Metrics as ResponseMetrics
from realtime.sdk.core import ClientCore

STARTED = SessionStarted(
    n=1,
    session_id="s",
    model="m",
    audio=AudioFormat(
        codec="pcm_s16le", sample_rate=24000, channels=1, frame_ms=80, frame_samples=1920
    ),
    input_audio=InputFormat(codec="pcm_s16le", sample_rate=24000),
    generation=Generation(),
    flow=Flow(),
    stall_flush_ms=800,
    layout="training",
    text_only_user="include",
    limits=DEFAULT_LIMITS,
    server="test",
    resume_token="one",
    resume_ttl_s=120,
)


def response(n: int, stream: int = 4, context: str = "conversation") -> bytes:
    return encode(
        ResponseStarted(
            n=n,
            response_id=f"r{stream}",
            item_id=f"i{stream}",
            stream=stream,
            position=0,
            context=context,
            epoch=0,
            seed=1,
        ),
        "msgpack",
    )


def frame(seq: int, stream: int = 4, epoch: int = 0, flags: Flags = Flags.NONE) -> bytes:
    return AudioFrame(
        FrameType.PCM_S16LE, flags, stream, seq, 24 * seq, 24, epoch, bytes(48)
    ).pack()


def core_begun() -> ClientCore:
    core = ClientCore()
    core.begin(encode(STARTED, "msgpack"))
    return core


def resumed(core: ClientCore, **fields) -> None:
    answer = dataclasses.replace(STARTED, n=None, resumed=True, resume_token="two", **fields)
    assert core.begin(encode(answer, "msgpack")) == answer


def sent(messages: list[bytes]) -> list[int]:
    return [msgpack.unpackb(message)["m"] for message in messages]


def test_it_says_what_it_has():
    core = core_begun()
    core.receive(response(2))
    core.receive(response(3, stream=5))
    core.receive(frame(0))
    core.receive(frame(1))
    asked = decode_client(core.resume(), "msgpack")
    assert (asked.session_id, asked.resume.token, asked.resume.after_event) == ("s", "one", 3)
    assert asked.resume.received == ((4, 1),)
    resumed(core, last_m=0)
    assert decode_client(core.resume(), "msgpack").resume.token == "two"


def test_streams_that_are_over_are_not_asked_for():
    core = core_begun()
    core.receive(response(2))
    core.receive(frame(0))
    done = ResponseDone(
        n=3,
        response_id="r4",
        status="completed",
        audio_ms=1,
        sent_ms=1,
        metrics=ResponseMetrics(),
    )
    core.receive(encode(done, "msgpack"))
    assert decode_client(core.resume(), "msgpack").resume.received == ()


def test_what_was_not_applied_is_sent_again_in_order():
    core = core_begun()
    for t in range(5):
        core.send(Ping(m=1, t=t))
    (audio,) = core.user_audio(bytes(480))
    core.send(Ping(m=1, t=5))
    resumed(core, last_m=3, next_input_seq=0)
    first, second, third, fourth = core.unconfirmed()
    assert sent([first, second, fourth]) == [4, 5, 6]
    assert third == audio
    resumed(core, last_m=5, next_input_seq=1)
    assert sent(core.unconfirmed()) == [6]


def test_an_answer_confirms_all_that_was_sent_before_it():
    core = core_begun()
    for t in range(3):
        core.send(Ping(m=1, event_id=f"p{t}", t=t))
    core.receive(encode(Pong(n=2, reply_to="p1", t=1, server_t=1), "msgpack"))
    assert sent(core.unconfirmed()) == [3]


@pytest.mark.parametrize("code", ["sequence_gap", "rate_limited"])
def test_a_message_that_was_not_taken_yet_stays_unconfirmed(code: str):
    core = core_begun()
    core.send(Ping(m=1, event_id="p", t=0))
    error = Error(
        n=2, reply_to="p", scope="session", code=code, message="", retryable=True, expected=1
    )
    core.receive(encode(error, "msgpack"))
    assert sent(core.unconfirmed()) == [1]


def test_events_that_came_before_are_skipped():
    core = core_begun()
    assert core.receive(response(2)) is not None
    assert core.receive(response(2)) is None
    core.receive(frame(0))
    resumed(core)
    assert core.receive(response(2)) is None
    assert core.receive(frame(1)) is not None


def test_a_gap_is_told_with_the_sound_after_it():
    core = core_begun()
    core.receive(response(2))
    core.receive(frame(0))
    resumed(core, gaps=(Gap(stream=4, first_seq=1, last_seq=10),))
    sound = core.receive(frame(11))
    assert (sound.pts, sound.lost_ms) == (24 * 11, 10)
    assert core.receive(frame(12)).lost_ms == 0


def test_a_gap_of_a_response_not_known_yet():
    core = core_begun()
    resumed(core, gaps=(Gap(stream=4, first_seq=0, last_seq=2),))
    core.receive(response(2))
    assert core.receive(frame(3)).lost_ms == 3


def test_a_hole_that_was_not_told_is_noticed():
    core = core_begun()
    core.receive(response(2))
    resumed(core)
    with pytest.raises(ProtocolError, match="frame 1 came, 0 was awaited"):
        core.receive(frame(1))


def test_an_interrupt_that_was_not_applied_still_silences_the_old_epoch():
    core = core_begun()
    core.receive(response(2))
    core.send(Interrupt(m=1))
    resumed(core, last_m=0, epoch=0)
    assert core.receive(frame(0)) is None
    resumed(core, last_m=1, epoch=1)
    assert core.receive(frame(1)) is None
    assert core.receive(frame(2, epoch=1)) is not None


def test_a_socket_that_begins_with_an_error_changes_nothing():
    core = core_begun()
    core.send(Ping(m=1, t=0))
    error = Error(n=1, scope="connection", code="session_not_found", message="", retryable=False)
    assert core.begin(encode(error, "msgpack")) == error
    assert core.receive(response(2)) is not None
    with pytest.raises(ProtocolError, match="begins with"):
        core.begin(response(3))
