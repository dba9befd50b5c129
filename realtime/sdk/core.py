"""The client's side of protocol v1 without I/O: numbers what is sent, sorts what comes in."""

from __future__ import annotations

import dataclasses

from realtime.protocol.codec import decode_server, encode
from realtime.protocol.errors import ProtocolError
from realtime.protocol.frames import (
    OPUS_CLOCK_HZ,
    AudioFrame,
    Flags,
    epoch_is_before,
    is_audio,
    next_epoch,
    unpack_packets,
)
from realtime.protocol.messages import (
    ClientMessage,
    Interrupt,
    ResponseDone,
    ResponseStarted,
    ServerMessage,
    SessionStarted,
)
from realtime.sdk.user_audio import UserAudioFrames

SUBPROTOCOL = "moss.v1.msgpack"


@dataclasses.dataclass(frozen=True, slots=True)
class Sound:
    """Sound of a response in the session's format: Opus packets, or one run of samples.

    It lasts `ms`; its first sample is the response's sample `pts`.
    """

    response_id: str
    pieces: tuple[bytes, ...]
    pts: int
    ms: float
    last: bool


class ClientCore:
    """One connection. Messages are encoded in the order of the `send` calls."""

    def __init__(self) -> None:
        self._sent = 0
        self._epoch = 0
        self._clock_hz = OPUS_CLOCK_HZ
        self._user_audio: UserAudioFrames
        self._responses: dict[int, ResponseStarted] = {}
        self._next_seq: dict[int, int] = {}

    def send(self, message: ClientMessage) -> bytes:
        """Number and encode a message; its own `m` is ignored."""
        self._sent += 1
        if isinstance(message, Interrupt):
            # What is still under way of the old epoch must not be heard any more.
            self._epoch = next_epoch(self._epoch)
        data = encode(dataclasses.replace(message, m=self._sent), "msgpack")
        assert isinstance(data, bytes)
        return data

    def user_audio(self, data: bytes) -> list[bytes]:
        """Return the messages that carry what the user says: one Opus packet, or whole samples.

        Raises `ValueError` for anything else.
        """
        return self._user_audio.frames(data)

    def receive(self, data: str | bytes) -> ServerMessage | Sound | None:
        """Read what came; None for sound that is stale and for messages of a later version.

        Raises `ProtocolError` when the server breaks the protocol, a lost frame included.
        """
        if isinstance(data, bytes) and is_audio(data):
            return self._receive_sound(AudioFrame.parse(data))
        message = decode_server(data, "msgpack")
        match message:
            case SessionStarted():
                self._epoch = message.epoch
                audio = message.audio
                self._clock_hz = OPUS_CLOCK_HZ if audio.codec == "opus" else audio.sample_rate
                self._user_audio = UserAudioFrames(message.input_audio)
            case ResponseStarted():
                self._responses[message.stream] = message
                self._next_seq[message.stream] = 0
            case ResponseDone():
                self._forget(message.response_id)
        return message

    def _receive_sound(self, frame: AudioFrame) -> Sound | None:
        response = self._responses.get(frame.stream)
        if response is None:
            raise ProtocolError("bad_message", f"sound of an unknown stream {frame.stream}")
        if frame.seq != self._next_seq[frame.stream]:
            expected = self._next_seq[frame.stream]
            raise ProtocolError("bad_message", f"frame {frame.seq} came, {expected} was awaited")
        self._next_seq[frame.stream] += 1
        in_conversation = response.context == "conversation"
        if in_conversation and epoch_is_before(frame.epoch, self._epoch):
            return None
        last = Flags.LAST_OF_RESPONSE in frame.flags
        ms = 1000 * frame.samples / self._clock_hz
        return Sound(response.response_id, _pieces(frame), frame.pts, ms, last)

    def _forget(self, response_id: str) -> None:
        for stream, response in list(self._responses.items()):
            if response.response_id == response_id:
                del self._responses[stream], self._next_seq[stream]


def _pieces(frame: AudioFrame) -> tuple[bytes, ...]:
    if Flags.PACKED in frame.flags:
        return tuple(unpack_packets(frame.payload))
    return (frame.payload,) if frame.payload else ()
