"""Audio frames and their neighbours on the wire."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from realtime.protocol.codec import encode
from realtime.protocol.errors import ProtocolError
from realtime.protocol.frames import (
    FROM_CLIENT,
    HEADER_BYTES,
    AudioFrame,
    Flags,
    FrameType,
    epoch_is_before,
    is_audio,
    next_epoch,
    pack_packets,
    unpack_packets,
)
from realtime.protocol.messages import Error, Interrupt, Ping, ResponseText

U16, U32 = st.integers(0, 2**16 - 1), st.integers(0, 2**32 - 1)
FRAMES = st.builds(
    AudioFrame,
    st.sampled_from([kind | side for kind in FrameType for side in (0, FROM_CLIENT)]),
    st.integers(0, 63).map(Flags),
    *(U16, U32, U32, U16, U16),
    st.binary(max_size=64),
)


@given(FRAMES)
def test_pack_and_parse_are_inverse(frame: AudioFrame) -> None:
    data = frame.pack()
    assert len(data) == HEADER_BYTES + len(frame.payload)
    assert AudioFrame.parse(data) == frame


@given(FRAMES, st.text(min_size=1, max_size=200))
def test_audio_and_control_never_collide(frame: AudioFrame, text: str) -> None:
    assert is_audio(frame.pack())
    for message in (
        Ping(m=1, t=0.0),
        Interrupt(m=2**53 - 1),
        ResponseText(m=3, event_id="e", response_id=text[:64], delta=text),
        Error(scope="session", code="internal", message=text, retryable=True),
    ):
        data = encode(message, "msgpack")
        assert isinstance(data, bytes)
        assert not is_audio(data)
        assert data[0] in (*range(0x80, 0x90), 0xDE, 0xDF)


@given(st.lists(st.binary(max_size=400), max_size=8))
def test_packets_survive_packing(packets: list[bytes]) -> None:
    assert unpack_packets(pack_packets(packets)) == packets


@pytest.mark.parametrize("payload", [b"\x01", b"\x03\x00ab", b"\x00\x00\x01"])
def test_a_packed_payload_that_is_cut_short_is_refused(payload: bytes) -> None:
    with pytest.raises(ProtocolError, match="cut short"):
        unpack_packets(payload)


@pytest.mark.parametrize("data", [b"", b"\x01", b"\x01" + bytes(14), b"\x06" + bytes(15)])
def test_what_is_no_audio_frame_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        AudioFrame.parse(data)
    assert caught.value.code == "bad_message"


@given(U16)
def test_the_next_epoch_is_after(epoch: int) -> None:
    assert epoch_is_before(epoch, next_epoch(epoch))
    assert not epoch_is_before(next_epoch(epoch), epoch)


@given(U16, U16)
def test_epoch_order_is_antisymmetric(one: int, other: int) -> None:
    assert not (epoch_is_before(one, other) and epoch_is_before(other, one))
