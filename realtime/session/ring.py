"""What was sent last, in order, so that a client that lost its socket gets what it missed."""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import operator
from collections import deque
from collections.abc import Iterable

from realtime.protocol.errors import ProtocolError
from realtime.protocol.frames import AudioFrame, Flags
from realtime.protocol.messages import Gap, Resume

MAX_AUDIO_MS = 10_000
MAX_AUDIO_BYTES = 2 << 20
MAX_MESSAGE_BYTES = 2 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class SentMessage:
    """A control message: its number `n` and its encoded form."""

    place: int
    n: int
    data: str | bytes

    @property
    def size_bytes(self) -> int:
        """Memory it takes."""
        return len(self.data)


@dataclasses.dataclass(frozen=True, slots=True)
class SentFrame:
    """An audio frame of a response, `length_ms` long."""

    place: int
    response_id: str
    frame: AudioFrame
    length_ms: float

    @property
    def size_bytes(self) -> int:
        """Memory it takes."""
        return len(self.frame.payload)


Sent = SentMessage | SentFrame


@dataclasses.dataclass(frozen=True, slots=True)
class _Lost:
    place: int
    seq: int


class ReplayRing:
    """The last 10 s of sound (2 MiB at most) and the last 2 MiB of control messages.

    Messages outlast the sound before them: a client's view of the session needs every one of them,
    while lost sound is a gap that can be told.
    """

    def __init__(self) -> None:
        self._messages: deque[SentMessage] = deque()
        self._frames: deque[SentFrame] = deque()
        self._message_bytes = 0
        self._audio_bytes = 0
        self._audio_ms = 0.0
        self._places = itertools.count()
        self._forgotten_n = 0  # the last message that is gone
        self._forgotten: dict[int, _Lost] = {}  # by stream, its last frame that is gone

    def add_message(self, n: int, data: str | bytes) -> None:
        """Note that a control message goes out."""
        message = SentMessage(next(self._places), n, data)
        self._messages.append(message)
        self._message_bytes += message.size_bytes
        while self._message_bytes > MAX_MESSAGE_BYTES and len(self._messages) > 1:
            self._forget_message()

    def add_frame(self, response_id: str, frame: AudioFrame, length_ms: float) -> None:
        """Note that an audio frame goes out."""
        sent = SentFrame(next(self._places), response_id, frame, length_ms)
        self._frames.append(sent)
        self._audio_bytes += sent.size_bytes
        self._audio_ms += length_ms
        while self._audio_ms > MAX_AUDIO_MS or self._audio_bytes > MAX_AUDIO_BYTES:
            self._forget_frame()

    def drop(self, stream: int) -> None:
        """Forget the sound of a response that was cut: nobody is to hear it any more."""
        self._forgotten.pop(stream, None)
        self._frames = deque(sent for sent in self._frames if sent.frame.stream != stream)
        self._audio_bytes = sum(sent.size_bytes for sent in self._frames)
        self._audio_ms = sum(sent.length_ms for sent in self._frames)

    def missed(self, resume: Resume) -> tuple[list[Sent], tuple[Gap, ...]]:
        """Return what to send again, in its order, and the sound that is gone.

        What a client has received is the beginning of what was sent, so the last thing that it
        names tells the place. Raises `ProtocolError` when messages it needs are gone.
        """
        if resume.after_event < self._forgotten_n:
            raise ProtocolError(
                "resume_rejected",
                f"too much was missed: event {resume.after_event + 1} is no longer held",
                scope="connection",
                param="resume.after_event",
            )
        received = dict(resume.received)
        known = [m.place for m in self._messages if m.n <= resume.after_event]
        known += [s.place for s in self._frames if s.frame.seq <= received.get(s.frame.stream, -1)]
        place = max(known, default=-1)
        sent: list[Iterable[Sent]] = [self._messages, self._frames]
        entries = heapq.merge(*sent, key=operator.attrgetter("place"))
        gaps = tuple(
            Gap(stream=stream, first_seq=received.get(stream, -1) + 1, last_seq=lost.seq)
            for stream, lost in self._forgotten.items()
            if lost.place > place and lost.seq > received.get(stream, -1)
        )
        return [_again(entry) for entry in entries if entry.place > place], gaps

    def _forget_message(self) -> None:
        message = self._messages.popleft()
        self._message_bytes -= message.size_bytes
        self._forgotten_n = message.n
        while self._frames and self._frames[0].place < message.place:
            self._forget_frame()
        for stream, lost in list(self._forgotten.items()):
            if lost.place < message.place:  # who lacks it lacks the message too, and is refused
                del self._forgotten[stream]

    def _forget_frame(self) -> None:
        sent = self._frames.popleft()
        self._audio_bytes -= sent.size_bytes
        self._audio_ms -= sent.length_ms
        self._forgotten[sent.frame.stream] = _Lost(sent.place, sent.frame.seq)


def _again(sent: Sent) -> Sent:
    if isinstance(sent, SentMessage):
        return sent
    frame = dataclasses.replace(sent.frame, flags=sent.frame.flags | Flags.REPLAYED)
    return dataclasses.replace(sent, frame=frame)
