"""What one socket still has to send, in order: control messages and pieces of sound."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import deque

import numpy as np
from numpy.typing import NDArray

from engine.api import ModelInfo
from realtime.protocol.codec import Encoding, encode
from realtime.protocol.frames import Flags
from realtime.protocol.messages import AudioFormat, ServerMessage
from realtime.server.audio_stream import AudioStream
from realtime.session.effects import SendAudio

_STARTS = Flags.FIRST | Flags.DISCONTINUITY
_ENDS = Flags.LAST_OF_SEGMENT | Flags.LAST_OF_RESPONSE


@dataclasses.dataclass(frozen=True, slots=True)
class Control:
    """An encoded control message and its number, if it has one."""

    data: str | bytes
    n: int | None


@dataclasses.dataclass(frozen=True, slots=True)
class Piece:
    """At most `frame_ms` of sound, not encoded yet: f32 `[samples, channels]`."""

    stream: AudioStream
    response_id: str
    handle: int
    epoch: int
    pcm: NDArray[np.float32]
    flags: Flags


@dataclasses.dataclass(frozen=True, slots=True)
class Closing:
    """Close the socket."""

    code: int
    reason: str


Entry = Control | Piece | Closing


class Outbox:
    """An ordered queue with one reader; nothing here waits but `wait`."""

    def __init__(self, encoding: Encoding, model: ModelInfo) -> None:
        self.queued_bytes = 0
        self._encoding = encoding
        self._model = model
        self._entries: deque[Entry] = deque()
        self._streams: dict[int, AudioStream] = {}
        self._news = asyncio.Event()

    def put(self, message: ServerMessage) -> None:
        """Queue a control message."""
        self._append(Control(encode(message, self._encoding), message.n))

    def put_audio(self, sound: SendAudio, audio: AudioFormat) -> None:
        """Queue sound, in pieces of `audio.frame_ms`."""
        stream = self._streams.get(sound.stream)
        if stream is None:
            stream = self._streams[sound.stream] = AudioStream(sound.stream, audio, self._model)
        size = self._model.rate_hz * audio.frame_ms // 1000
        starts = range(0, max(1, len(sound.pcm)), size)
        for start in starts:
            flags = sound.flags & ~(_STARTS | _ENDS)
            flags |= sound.flags & _STARTS if start == 0 else Flags.NONE
            flags |= sound.flags & _ENDS if start == starts[-1] else Flags.NONE
            pcm = sound.pcm[start : start + size]
            self._append(Piece(stream, sound.response_id, sound.stream, sound.epoch, pcm, flags))

    def drop(self, stream: int) -> None:
        """Remove the stream's queued sound; a piece that is being encoded now is marked dropped."""
        if encoder := self._streams.pop(stream, None):
            encoder.dropped = True
        self._entries = deque(
            entry
            for entry in self._entries
            if not (isinstance(entry, Piece) and entry.handle == stream)
        )
        self.queued_bytes = sum(_size(entry) for entry in self._entries)

    def close(self, code: int, reason: str) -> None:
        """Close once everything before is sent."""
        self._append(Closing(code, reason))

    def stay_open(self) -> None:
        """Take `close` back: the socket is gone anyway, and the next one is to live."""
        self._entries = deque(e for e in self._entries if not isinstance(e, Closing))

    @property
    def has_entries(self) -> bool:
        """Whether anything waits."""
        return bool(self._entries)

    async def news(self) -> None:
        """Wait until an entry comes or `wake` is called."""
        self._news.clear()
        await self._news.wait()

    def wake(self) -> None:
        """End a `news` that waits."""
        self._news.set()

    def take(self) -> Entry | None:
        """Take the oldest entry, if one is left."""
        if not self._entries:
            return None
        entry = self._entries.popleft()
        self.queued_bytes -= _size(entry)
        return entry

    def sent(self, piece: Piece) -> None:
        """Forget the stream whose last piece is on the wire."""
        if Flags.LAST_OF_RESPONSE in piece.flags:
            self._streams.pop(piece.handle, None)

    def _append(self, entry: Entry) -> None:
        self._entries.append(entry)
        self.queued_bytes += _size(entry)
        self._news.set()


def _size(entry: Entry) -> int:
    match entry:
        case Control():
            return len(entry.data)
        case Piece():
            return entry.pcm.nbytes
        case Closing():
            return 0
