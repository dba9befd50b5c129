"""What the user says: sound that arrives until a commit makes it an item of the history."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Final

import numpy as np

from engine.api import Encoded, Failed, U16Codes
from realtime.protocol.errors import ErrorCode, ProtocolError
from realtime.protocol.limits import Limits
from realtime.protocol.messages import (
    InputAudioCommit,
    InputAudioCommitted,
    InputFormat,
)
from realtime.session.effects import DecodeInput, DropInput, EndInput
from realtime.session.emitter import Emitter
from realtime.session.history import History
from realtime.session.input_frames import InputFrames, InputSound
from realtime.session.restarts import RESTARTED
from realtime.session.sound import FrameClock

_MOST_UNENCODED: Final = 4  # commits


@dataclasses.dataclass(slots=True)
class _Utterance:
    """Sound since a commit. `item_id` and `reply_to` are set by the next one."""

    stream: int
    samples: int = 0
    codes: list[U16Codes] = dataclasses.field(default_factory=list)
    is_full: bool = False
    is_damaged: bool = False
    item_id: str = ""
    reply_to: str | None = None


class UserAudio:
    """Takes frames, commits and what the engine has encoded.

    A committed item is in the history at once, with its text, and gets its sound when all of it is
    encoded. `new_stream` gives ids of encode streams that are never reused.
    """

    def __init__(
        self,
        emitter: Emitter,
        history: History,
        clock: FrameClock,
        limits: Limits,
        audio: InputFormat,
        new_stream: Callable[[], int],
    ) -> None:
        self._emitter = emitter
        self._history = history
        self._clock = clock
        self._limits = limits
        self._frames = InputFrames(audio)
        self._new_stream = new_stream
        self._current: _Utterance | None = None
        self._committed: dict[int, _Utterance] = {}  # by stream, oldest first

    @property
    def next_seq(self) -> int:
        """Number of the frame that is awaited."""
        return self._frames.next_seq

    @property
    def is_encoding(self) -> bool:
        """Whether a committed item still lacks sound."""
        return bool(self._committed)

    @property
    def unannounced(self) -> set[str]:
        """Items that no `item.created` has told of yet."""
        return {utterance.item_id for utterance in self._committed.values()}

    def use(self, audio: InputFormat) -> None:
        """Expect frames of another rate; raises `ProtocolError` in the midst of an utterance."""
        if self._current and audio != self._frames.audio:
            raise ProtocolError(
                "invalid_field",
                f"user audio at {self._frames.audio.sample_rate} Hz has begun: commit or clear it "
                "before you change its rate",
                param="input_audio.sample_rate",
            )
        self._frames.audio = audio

    def take(self, data: bytes) -> bool:
        """Take a frame; true when an utterance begins with it. Raises `ProtocolError`."""
        sound = self._frames.read(data)
        if sound is None or not sound.samples:
            return False
        begins = self._current is None
        if self._current is None:
            self._current = _Utterance(self._new_stream())
        self._add(self._current, sound)
        return begins

    def _add(self, utterance: _Utterance, sound: InputSound) -> None:
        limit_s = self._limits.item_audio_s
        if utterance.is_full:
            return
        if utterance.samples + sound.samples > limit_s * self._frames.clock_hz:
            utterance.is_full = True
            raise ProtocolError(
                "bad_audio",
                f"an item may have {limit_s} s of user audio: commit or clear it; what comes "
                "before that is dropped",
            )
        utterance.samples += sound.samples
        self._emitter.emit(DecodeInput(utterance.stream, sound.packets, self._frames.audio))

    def commit(self, message: InputAudioCommit) -> None:
        """Make an item of the sound so far; raises `ProtocolError`."""
        utterance, text = self._current, message.text or ""
        if utterance is None and not text.strip():
            raise ProtocolError("bad_audio", "there is neither user audio nor text to commit")
        if len(self._committed) >= _MOST_UNENCODED:
            raise ProtocolError(
                "rate_limited",
                f"{_MOST_UNENCODED} commits are still being encoded; wait for an item.created",
            )
        item = self._history.user_item(text, message.item_id)
        self._history.add(item)
        samples = utterance.samples if utterance else 0
        self._emitter.send(
            InputAudioCommitted(
                reply_to=message.event_id,
                item_id=item.id,
                duration_ms=1000 * samples / self._frames.clock_hz,
            )
        )
        if utterance is None:
            self._emitter.send(self._history.created(item))
            return
        utterance.item_id, utterance.reply_to = item.id, message.event_id
        self._committed[utterance.stream] = utterance
        self._current = None
        self._emitter.emit(EndInput(utterance.stream))

    def clear(self) -> None:
        """Forget the sound since the last commit."""
        if self._current:
            self._emitter.emit(DropInput(self._current.stream))
            self._current = None

    def stop(self) -> None:
        """Stop all work for this session."""
        self.clear()
        for stream in self._committed:
            self._emitter.emit(DropInput(stream))
        self._committed.clear()

    def encoded(self, event: Encoded) -> bool:
        """Take codes; true when a committed item has all of its sound now, or gets none."""
        utterance = self._find(event.stream)
        if utterance is None:
            return False
        utterance.codes.append(event.codes)
        if event.end:
            del self._committed[event.stream]
            self._complete(utterance, np.concatenate(utterance.codes))
        return event.end

    def failed(self, event: Failed) -> bool:
        """Note that the engine lost an utterance; true when it was a committed item."""
        utterance = self._find(int(event.id))
        if utterance is None:
            return False
        restarted = event.error.startswith(RESTARTED)
        code: ErrorCode = RESTARTED if restarted else "internal"
        why = "the engine restarted" if restarted else "the engine failed"
        if utterance is self._current:
            self._current = None
            text = f"{why}: the user audio since the last commit is lost"
            self._emitter.refuse(ProtocolError(code, text))
            return False
        del self._committed[utterance.stream]
        self._give_up(utterance, code, f"{why} before the user audio was encoded")
        return True

    def damaged(self, stream: int, problem: str) -> None:
        """Report that part of an utterance could not be decoded, once for each."""
        utterance = self._find(stream)
        if utterance and not utterance.is_damaged:
            utterance.is_damaged = True
            self._emitter.refuse(ProtocolError("bad_audio", problem))

    def _find(self, stream: int) -> _Utterance | None:
        if self._current and self._current.stream == stream:
            return self._current
        return self._committed.get(stream)

    def _complete(self, utterance: _Utterance, codes: U16Codes) -> None:
        if not len(codes):
            self._give_up(utterance, "bad_audio", "nothing of the user audio could be decoded")
            return
        item = self._history.add_sound(utterance.item_id, codes)
        if item:
            self._emitter.send(self._history.created(item))

    def _give_up(self, utterance: _Utterance, code: ErrorCode, why: str) -> None:
        item = self._history.find(utterance.item_id)
        if item and item.text.strip():
            self._emitter.send(self._history.created(item))
            why += "; its item has its text alone"
        elif item:
            self._history.remove(item.id)
            why += "; its item is dropped"
        self._emitter.refuse(ProtocolError(code, why, reply_to=utterance.reply_to))
