"""A started session: its settings, history and responses, and the messages that act on them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from engine.api import Encoded, Event, Failed, ModelInfo
from engine.models.realtime_prompt import RealtimePrompt
from realtime.protocol.capsule import read_capsule
from realtime.protocol.messages import (
    ClientMessage,
    HistoryClear,
    HistoryExport,
    HistoryGet,
    InputAudioClear,
    InputAudioCommit,
    Interrupt,
    ItemCreate,
    ItemDelete,
    ItemRef,
    ItemTruncate,
    Playback,
    ResponseCancel,
    ResponseEnd,
    ResponseFlush,
    ResponseStart,
    ResponseText,
    SessionStart,
    SessionStarted,
    SessionUpdate,
    SessionUpdated,
    VoiceRef,
)
from realtime.session.barge_in import CANCELLED, BargeIn
from realtime.session.capsule import CapsuleReader
from realtime.session.context import ModelContext
from realtime.session.cut import Cutter
from realtime.session.edits import HistoryEdits
from realtime.session.effects import DropAudio
from realtime.session.emitter import Emitter
from realtime.session.heard import SpeechRate
from realtime.session.history import History
from realtime.session.outcome import TEXT_TIMEOUT
from realtime.session.requests import Requests
from realtime.session.row_events import RowEvents
from realtime.session.sampling import with_defaults
from realtime.session.settings import SessionConfig, Voices, find_voice, negotiate, update
from realtime.session.sound import FrameClock
from realtime.session.speaking import Speaking
from realtime.session.user_audio import UserAudio


class Dialogue:
    """Everything of a session from its `session.start` on.

    Raises `ProtocolError`, without effects, when the session cannot start.
    """

    def __init__(
        self,
        message: SessionStart,
        *,
        session_id: str,
        emitter: Emitter,
        model: ModelInfo,
        prompt: RealtimePrompt,
        voices: Voices,
        new_row: Callable[[], int],
        seed: int,
        config: SessionConfig,
    ) -> None:
        capsule = None if message.capsule is None else read_capsule(message.capsule)
        if capsule and capsule.voice and message.voice is None:
            message = dataclasses.replace(message, voice=VoiceRef(id=capsule.voice))
        settings = negotiate(message, model, voices, config)
        clock, rate = FrameClock(model), SpeechRate()
        cutter = Cutter(clock, prompt.tokenizer.encode)
        history = History(clock, prompt.tokenizer.encode, config.limits)
        if capsule:
            CapsuleReader(history, clock).restore(capsule)
        for item in message.history:
            history.add(history.read(item))
        context = ModelContext(emitter, history, prompt, clock, config, session_id, settings)
        requests = Requests(history, prompt, clock, config, new_row, seed)
        self._emitter = emitter
        self._voices = voices
        self._config = config
        self._model = model
        self._session_id = session_id
        self._history = history
        self._context = context
        self._speaking = Speaking(emitter, history, context, requests, settings, config)
        self.rows = RowEvents(emitter, self._speaking, clock, cutter, rate)
        self.user_audio = UserAudio(
            emitter, history, clock, config.limits, settings.input_audio, new_row
        )
        self._edits = HistoryEdits(
            emitter, history, self._speaking, context, clock, self.user_audio
        )
        voice_id = settings.voice.id if settings.voice else None
        self._is_other_voice = capsule is not None and capsule.voice != voice_id
        self._barge_in = BargeIn(emitter, self._speaking, history, context, clock, cutter, rate)

    @property
    def speaking(self) -> Speaking:
        """The responses."""
        return self._speaking

    def begin(self, started: SessionStarted) -> None:
        """Say that the session has started, and prepare the engine for its first reply."""
        self._emitter.send(started)
        if self._is_other_voice:
            self._context.restart()
        self._context.trim_history()
        self._context.warm()

    def started(self, reply_to: str | None) -> SessionStarted:
        """Return the session's settings as they are."""
        settings = self._speaking.settings
        return SessionStarted(
            reply_to=reply_to,
            session_id=self._session_id,
            model=self._model.name,
            voice=settings.voice.name if settings.voice else None,
            audio=settings.audio,
            input_audio=settings.input_audio,
            generation=with_defaults(settings.generation, self._model),
            timestamps=settings.timestamps,
            flow=settings.flow,
            stall_flush_ms=settings.stall_flush_ms,
            normalize=settings.normalize,
            layout=settings.layout,
            text_only_user=settings.text_only_user,
            limits=self._config.limits,
            epoch=self._emitter.epoch,
            resume_ttl_s=self._config.resume_ttl_s,
            server=self._config.server,
            metadata=settings.metadata,
        )

    def item_refs(self) -> tuple[ItemRef, ...]:
        """Return which items there are, oldest first."""
        return tuple(ItemRef(id=item.id, role=item.role) for item in self._history.items)

    def apply(self, message: ClientMessage, now_ms: int) -> None:
        """Apply a message; raises `ProtocolError` when it cannot be."""
        match message:
            case SessionUpdate():
                self._update(message)
            case ItemTruncate():
                self._barge_in.truncate(message, now_ms)
            case ItemCreate() | ItemDelete() | HistoryClear() | HistoryGet() | HistoryExport():
                self._edits.apply(message)
            case InputAudioCommit():
                self._commit_user_audio(message, now_ms)
            case InputAudioClear():
                self.user_audio.clear()
            case ResponseStart():
                voice = self._speaking.settings.voice
                if message.voice is not None:
                    voice = find_voice(self._voices, message.voice)
                self._speaking.start(message, voice, now_ms)
            case ResponseText():
                self._speaking.add_text(message, now_ms)
            case ResponseFlush():
                self._speaking.flush(message, now_ms)
            case ResponseEnd():
                self._speaking.end(message, now_ms)
            case ResponseCancel():
                self._barge_in.cancel(message, now_ms)
            case Interrupt():
                self._barge_in.interrupt(message, now_ms)
            case Playback():
                self._barge_in.playback(message, now_ms)

    def receive_audio(self, data: bytes) -> None:
        """Take a piece of what the user says; raises `ProtocolError`."""
        if self.user_audio.take(data):
            # What was dropped while nobody spoke is prefilled by the time that a reply is wanted.
            self._context.warm()

    def engine_event(self, event: Event, now_ms: int) -> None:
        """Take an event of a row or of an encode stream."""
        match event:
            case Encoded():
                if self.user_audio.encoded(event):
                    self._user_turn_changed(now_ms)
            case Failed():
                if self.user_audio.failed(event):
                    self._user_turn_changed(now_ms)
            case _:
                self.rows.apply(event, now_ms)

    def _commit_user_audio(self, message: InputAudioCommit, now_ms: int) -> None:
        self.user_audio.commit(message)
        # A reply is near, and what was said before has been heard to its end.
        self._speaking.late.clear()
        self._user_turn_changed(now_ms)

    def _user_turn_changed(self, now_ms: int) -> None:
        self._speaking.waits_for_user = self.user_audio.is_encoding
        if not self._speaking.waits_for_user:
            self._context.trim_history()
            self._context.warm()
            self._speaking.open_next(now_ms)

    def _update(self, message: SessionUpdate) -> None:
        settings = update(self._speaking.settings, message, self._model, self._voices, self._config)
        self.user_audio.use(settings.input_audio)
        self._speaking.settings = settings
        self._emitter.send(
            SessionUpdated(
                reply_to=message.event_id,
                voice=settings.voice.name if settings.voice else None,
                input_audio=settings.input_audio,
                generation=with_defaults(settings.generation, self._model),
                timestamps=settings.timestamps,
                flow=settings.flow,
                stall_flush_ms=settings.stall_flush_ms,
                normalize=settings.normalize,
                metadata=settings.metadata,
            )
        )
        if message.voice is not None:
            self._context.use_voice(settings.voice)
            self._context.warm()

    def tick(self, now_ms: int) -> None:
        """Flush text that waits for more, and give up on text that does not come."""
        for response in list(self._speaking.active()):
            flush_due_ms = response.stall_flush_due_ms()
            timeout_due_ms = response.text_timeout_due_ms(self._text_timeout_ms)
            if timeout_due_ms is not None and now_ms >= timeout_due_ms:
                self._speaking.stop_row(response)
                self.rows.end_sound(response, TEXT_TIMEOUT)
            elif flush_due_ms is not None and now_ms >= flush_due_ms:
                response.text.flush(None)
                self._speaking.hand_over(response)

    def next_deadline_ms(self) -> int | None:
        """When `tick` has something to do."""
        deadlines = [
            due_ms
            for response in self._speaking.active()
            for due_ms in (
                response.stall_flush_due_ms(),
                response.text_timeout_due_ms(self._text_timeout_ms),
            )
            if due_ms is not None
        ]
        return min(deadlines, default=None)

    @property
    def _text_timeout_ms(self) -> int:
        return self._config.limits.text_timeout_s * 1000

    def stop_rows(self) -> None:
        """Stop all work of the engine for this session."""
        self.user_audio.stop()
        for response in self._speaking.active():
            self._speaking.stop_row(response)

    def cancel_all(self, now_ms: int) -> None:
        """End every response, because the session ends."""
        for response in list(self._speaking.active()):
            self._speaking.stop_row(response)
            self._emitter.emit(DropAudio(response.request.stream))
            heard = response.playback.heard(now_ms)
            self._speaking.finish(response, CANCELLED, heard=heard)
