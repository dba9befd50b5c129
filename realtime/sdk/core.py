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
    Error,
    Interrupt,
    ResponseDone,
    ResponseStarted,
    Resume,
    ServerMessage,
    SessionStart,
    SessionStarted,
    SessionUpdated,
)
from realtime.sdk.mirror import HistoryMirror
from realtime.sdk.unconfirmed import Unconfirmed, UnconfirmedMessages
from realtime.sdk.user_audio import UserAudioFrames

SUBPROTOCOL = "moss.v1.msgpack"


@dataclasses.dataclass(frozen=True, slots=True)
class Sound:
    """Sound of a response in the session's format: Opus packets, or one run of samples.

    It lasts `ms`; its first sample is the response's sample `pts`. `lost_ms` of sound before it
    went with a socket. `epoch` is None beside the conversation.
    """

    response_id: str
    pieces: tuple[bytes, ...]
    pts: int
    ms: float
    last: bool
    lost_ms: float = 0.0
    epoch: int | None = None


@dataclasses.dataclass(slots=True)
class _Stream:
    """What of a response's sound has come. `lost` frames before `next_seq` never will."""

    started: ResponseStarted
    next_seq: int = 0
    next_pts: int = 0
    lost: bool = False


class ClientCore:
    """One session, over one socket after another.

    Messages are encoded in the order of the `send` calls. After a loss, `resume` begins the next
    socket; once `session.started` came on it, `unconfirmed` is what to send first. `mirror` may
    be that of the session before this one, which goes on here.
    """

    def __init__(self, mirror: HistoryMirror | None = None) -> None:
        self.mirror = mirror or HistoryMirror()
        self.started: SessionStarted | None = None
        self._sent = 0
        self._epoch = 0
        self._last_n = 0
        self._unconfirmed = UnconfirmedMessages()
        self._gaps: dict[int, int] = {}  # by stream not known yet, its last frame that is lost
        self._clock_hz = OPUS_CLOCK_HZ
        self._user_audio: UserAudioFrames
        self._streams: dict[int, _Stream] = {}

    def send(self, message: ClientMessage) -> bytes:
        """Number and encode a message; its own `m` is ignored."""
        self._sent += 1
        if isinstance(message, Interrupt):
            # What is still under way of the old epoch must not be heard any more.
            self._epoch = next_epoch(self._epoch)
        data = _encoded(dataclasses.replace(message, m=self._sent))
        raises_epoch = isinstance(message, Interrupt)
        self._unconfirmed.add(
            Unconfirmed(data, m=self._sent, event_id=message.event_id, raises_epoch=raises_epoch)
        )
        return data

    def is_stale(self, epoch: int | None) -> bool:
        """Whether sound of this epoch was interrupted, and must not be heard any more."""
        return epoch is not None and epoch_is_before(epoch, self._epoch)

    def resume(self) -> bytes:
        """Return the message that takes the session up on another socket."""
        assert self.started
        resume = Resume(
            token=self.started.resume_token or "-",
            received=tuple((n, s.next_seq - 1) for n, s in self._streams.items() if s.next_seq),
            after_event=self._last_n,
        )
        return _encoded(SessionStart(m=1, session_id=self.started.session_id, resume=resume))

    def unconfirmed(self) -> list[bytes]:
        """Return what was sent and, as far as is known, not applied, in order."""
        return [entry.data for entry in self._unconfirmed]

    def user_audio(self, data: bytes) -> list[bytes]:
        """Return the messages that carry what the user says: one Opus packet, or whole samples.

        Raises `ValueError` for anything else.
        """
        frames = self._user_audio.frames(data)
        for frame in frames:
            seq = AudioFrame.parse(frame).seq
            self._unconfirmed.add(Unconfirmed(frame, seq=seq))
        return frames

    def begin(self, data: str | bytes) -> SessionStarted | Error:
        """Read the first message of a socket; raises `ProtocolError`.

        An error is of the socket, not of the session, and counts as nothing.
        """
        message = decode_server(data, "msgpack")
        if isinstance(message, SessionStarted):
            self._is_news(message)
            self._start(message)
        elif not isinstance(message, Error):
            text = f"a socket begins with session.started or an error, not {type(message).__name__}"
            raise ProtocolError("bad_message", text)
        return message

    def receive(self, data: str | bytes) -> ServerMessage | Sound | None:
        """Read what came; None for what is stale or came before, and for types of later versions.

        Raises `ProtocolError` when the server breaks the protocol, a lost frame included.
        """
        if isinstance(data, bytes) and is_audio(data):
            return self._receive_sound(AudioFrame.parse(data))
        message = decode_server(data, "msgpack")
        if message is None or not self._is_news(message):
            return None
        self.mirror.apply(message)
        match message:
            case ResponseStarted():
                self._streams[message.stream] = stream = _Stream(message)
                self._skip(stream, self._gaps.pop(message.stream, -1))
            case ResponseDone():
                self._forget(message.response_id)
            case SessionUpdated():
                self._user_audio.use(message.input_audio)
        return message

    def _is_news(self, message: ServerMessage) -> bool:
        """Whether a message did not come before; it may confirm what was sent."""
        if message.n is not None:
            if message.n <= self._last_n:
                return False
            self._last_n = message.n
        unapplied = isinstance(message, Error) and message.code in ("sequence_gap", "rate_limited")
        if message.reply_to is not None and not unapplied:
            self._unconfirmed.answered(message.reply_to)
        return True

    def _start(self, started: SessionStarted) -> None:
        self.started = started
        self._epoch = started.epoch
        audio = started.audio
        self._clock_hz = OPUS_CLOCK_HZ if audio.codec == "opus" else audio.sample_rate
        if not started.resumed:
            self._user_audio = UserAudioFrames(started.input_audio)
            return
        self._unconfirmed.applied(started.last_m or 0, started.next_input_seq or 0)
        for entry in self._unconfirmed:
            if entry.raises_epoch:
                self._epoch = next_epoch(self._epoch)
        for gap in started.gaps or ():
            stream = self._streams.get(gap.stream)
            if stream:
                self._skip(stream, gap.last_seq)
            else:
                self._gaps[gap.stream] = gap.last_seq

    def _skip(self, stream: _Stream, last_seq: int) -> None:
        if last_seq >= stream.next_seq:
            stream.next_seq, stream.lost = last_seq + 1, True

    def _receive_sound(self, frame: AudioFrame) -> Sound | None:
        stream = self._streams.get(frame.stream)
        if stream is None:
            raise ProtocolError("bad_message", f"sound of an unknown stream {frame.stream}")
        if frame.seq != stream.next_seq:
            text = f"frame {frame.seq} came, {stream.next_seq} was awaited"
            raise ProtocolError("bad_message", text)
        lost_ms = 1000 * (frame.pts - stream.next_pts) / self._clock_hz if stream.lost else 0.0
        stream.next_seq, stream.next_pts = frame.seq + 1, frame.pts + frame.samples
        stream.lost = False
        epoch = frame.epoch if stream.started.context == "conversation" else None
        if self.is_stale(epoch):
            return None
        last = Flags.LAST_OF_RESPONSE in frame.flags
        ms = 1000 * frame.samples / self._clock_hz
        response_id = stream.started.response_id
        return Sound(response_id, _pieces(frame), frame.pts, ms, last, lost_ms, epoch)

    def _forget(self, response_id: str) -> None:
        for handle, stream in list(self._streams.items()):
            if stream.started.response_id == response_id:
                del self._streams[handle]


def _encoded(message: ClientMessage) -> bytes:
    data = encode(message, "msgpack")
    assert isinstance(data, bytes)
    return data


def _pieces(frame: AudioFrame) -> tuple[bytes, ...]:
    if Flags.PACKED in frame.flags:
        return tuple(unpack_packets(frame.payload))
    return (frame.payload,) if frame.payload else ()
