"""The outbox keeps the order of effects and forgets what was dropped."""

import asyncio

import numpy as np
import pytest

from engine.fake import FAKE_MODEL
from realtime.protocol.frames import Flags
from realtime.protocol.messages import AudioFormat, Pong
from realtime.server.outbox import Closing, Control, Outbox, Piece
from realtime.session.effects import SendAudio

AUDIO = AudioFormat(
    codec="pcm_s16le", sample_rate=24000, channels=1, frame_ms=80, frame_samples=1920
)
LAST = Flags.LAST_OF_SEGMENT | Flags.LAST_OF_RESPONSE


@pytest.fixture
def outbox() -> Outbox:
    return Outbox("json", FAKE_MODEL)


def sound(stream: int, frames: int, flags: Flags = Flags.NONE) -> SendAudio:
    pcm = np.zeros((frames * 1920, 1), np.float32)
    return SendAudio(f"r{stream}", stream, 0, pcm, flags)


def drain(outbox: Outbox) -> list[object]:
    taken = []
    while (entry := outbox.take()) is not None:
        taken.append(entry)
    return taken


def test_a_chunk_becomes_pieces_of_one_frame_with_its_flags_at_the_ends(outbox: Outbox):
    outbox.put_audio(sound(1, 3, Flags.FIRST | Flags.DISCONTINUITY | LAST), AUDIO)
    pieces = drain(outbox)
    assert [len(piece.pcm) for piece in pieces] == [1920] * 3
    assert [piece.flags for piece in pieces] == [
        Flags.FIRST | Flags.DISCONTINUITY,
        Flags.NONE,
        LAST,
    ]
    assert len({id(piece.stream) for piece in pieces}) == 1


def test_an_empty_end_is_one_empty_piece(outbox: Outbox):
    outbox.put_audio(sound(1, 0, LAST), AUDIO)
    (piece,) = drain(outbox)
    assert (len(piece.pcm), piece.flags) == (0, LAST)


def test_control_messages_and_sound_keep_their_order(outbox: Outbox):
    outbox.put(Pong(t=1, server_t=1))
    outbox.put_audio(sound(1, 2), AUDIO)
    outbox.put(Pong(t=2, server_t=2))
    outbox.close(1000, "bye")
    assert [type(entry) for entry in drain(outbox)] == [Control, Piece, Piece, Control, Closing]


def test_dropping_a_stream_removes_its_pieces_and_marks_the_one_being_encoded(outbox: Outbox):
    outbox.put_audio(sound(1, 3), AUDIO)
    outbox.put_audio(sound(2, 1), AUDIO)
    outbox.put(Pong(t=1, server_t=1))
    being_encoded = outbox.take()
    outbox.drop(1)
    assert being_encoded.stream.dropped
    piece, control = drain(outbox)
    assert (piece.handle, piece.stream.dropped) == (2, False)
    assert isinstance(control, Control)
    assert outbox.queued_bytes == 0


def test_the_last_piece_can_be_dropped_while_it_is_encoded(outbox: Outbox):
    outbox.put_audio(sound(1, 1, Flags.FIRST | LAST), AUDIO)
    piece = outbox.take()
    outbox.drop(1)
    assert piece.stream.dropped
    outbox.put_audio(sound(2, 1, Flags.FIRST | LAST), AUDIO)
    sent = outbox.take()
    outbox.sent(sent)
    outbox.drop(2)
    assert not sent.stream.dropped


def test_queued_bytes_count_what_waits(outbox: Outbox):
    outbox.put_audio(sound(1, 2), AUDIO)
    assert outbox.queued_bytes == 2 * 1920 * 4
    outbox.take()
    assert outbox.queued_bytes == 1920 * 4


@pytest.mark.anyio
async def test_waiting_ends_when_something_comes(outbox: Outbox):
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(outbox.news(), name="wait")
        await asyncio.sleep(0)
        assert not waiting.done()
        outbox.put(Pong(t=1, server_t=1))
