"""What the engine says about rows, and what the socket has taken, as messages to the client."""

from __future__ import annotations

import numpy as np

from engine.api import Done, Event, Frames, Parked, Played, Refused, Resumed, Segment, Sent
from realtime.protocol.frames import Flags
from realtime.protocol.messages import ResponseResumed, ResponseStalled, ResponseWords
from realtime.session import outcome
from realtime.session.cut import Cutter
from realtime.session.effects import SendAudio
from realtime.session.emitter import Emitter
from realtime.session.heard import SpeechRate
from realtime.session.outcome import Outcome
from realtime.session.response import Response
from realtime.session.restarts import RESTARTED
from realtime.session.sound import FrameClock
from realtime.session.speaking import Speaking


class RowEvents:
    """Turns row events into sound, reports and, once all sound is out, `response.done`."""

    def __init__(
        self,
        emitter: Emitter,
        speaking: Speaking,
        clock: FrameClock,
        cutter: Cutter,
        rate: SpeechRate,
    ) -> None:
        self._emitter = emitter
        self._speaking = speaking
        self._clock = clock
        self._cutter = cutter
        self._rate = rate

    def apply(self, event: Event, now_ms: int) -> None:
        """Take an event; those of rows that are done with are ignored."""
        match event:
            case Frames() | Parked() | Resumed() | Segment() | Done() | Refused():
                response = self._speaking.find_row(event.row)
                if response and not response.outcome:
                    self._apply_to(response, event, now_ms)

    def _apply_to(
        self,
        response: Response,
        event: Frames | Parked | Resumed | Segment | Done | Refused,
        now_ms: int,
    ) -> None:
        match event:
            case Frames():
                self._frames(response, event, now_ms)
            case Parked():
                response.note_parked(event.why, now_ms)
                self._emitter.send(ResponseStalled(response_id=response.request.id, why=event.why))
            case Resumed():
                response.note_parked(None, now_ms)
                self._emitter.send(ResponseResumed(response_id=response.request.id, why=event.why))
            case Segment():
                self._segment(response, event, now_ms)
            case Done() if event.error.startswith(RESTARTED) and response.may_go_on():
                self._speaking.reopen(response, now_ms)
            case Done():
                response.counts = event.counts
                has_text = not response.text.is_blank
                ending = outcome.of_done(event, has_text=has_text, has_sound=response.samples > 0)
                self.end_sound(response, ending)
            case Refused():
                self.end_sound(response, outcome.of_refused(event))

    def _frames(self, response: Response, event: Frames, now_ms: int) -> None:
        flags = Flags.NONE if response.samples else Flags.FIRST
        if event.discontinuity:
            flags |= Flags.DISCONTINUITY
        response.note_frames(event, now_ms)
        if len(event.pcm):
            self._send_audio(response, event.pcm, flags)

    def _segment(self, response: Response, event: Segment, now_ms: int) -> None:
        response.note_segment(event, now_ms)
        spoken = response.text.spoken_segments
        if response.row_segment + event.index < len(spoken) and event.reason != "budget":
            part = response.parts()[-1:]
            for learned in part:
                self._rate.learn(learned.wording.spoken, self._clock.length_ms(learned.codes))
        is_last = response.text.ended and all(s.end_frame is not None for s in spoken)
        if not is_last and response.samples:
            self._send_audio(response, self._no_sound(), Flags.LAST_OF_SEGMENT)
        self._speaking.hand_over(response)

    def end_sound(self, response: Response, ending: Outcome) -> None:
        """Close the stream; the response is done as soon as its last frame is on the wire."""
        response.outcome = ending
        flags = Flags.LAST_OF_SEGMENT | Flags.LAST_OF_RESPONSE
        if not response.samples:
            flags |= Flags.FIRST
        self._send_audio(response, self._no_sound(), flags)

    def sent(self, stream: int, samples: int, last: bool, now_ms: int) -> None:
        """Sound of a stream is on the wire, `samples` in all, with its `last` frame or without."""
        response = next((r for r in self._speaking.active() if r.request.stream == stream), None)
        if response is None:
            return
        response.note_sent(samples, now_ms, self._listener_busy_until_ms(response, now_ms))
        if response.is_conversation:
            self._speaking.playing = response
        if response.request.tells_words:
            self._tell_words(response)
        if last and response.outcome:
            self._settle(response, response.outcome, now_ms)
        if response.outcome:
            return
        row, at_ns = response.request.row, now_ms * 1_000_000
        self._emitter.command(Sent(row, response.sent_samples, at_ns))
        if not response.request.acknowledged:
            self._emitter.command(Played(row, response.sent_samples, at_ns))

    def _tell_words(self, response: Response) -> None:
        """Tell the words whose sound is on the wire."""
        words = response.words.due(response.playback.sent_ms, self._rate.syllable_ms)
        if words:
            self._emitter.send(ResponseWords(response_id=response.request.id, words=words))

    def _listener_busy_until_ms(self, response: Response, now_ms: int) -> float:
        playing = self._speaking.playing
        if playing is None or playing is response or not response.is_conversation:
            return 0.0
        return playing.playback.ends_ms(now_ms)

    def _settle(self, response: Response, ending: Outcome, now_ms: int) -> None:
        self._speaking.finish(response, ending)
        if response.request.commit:
            cut = self._cutter.cut(response.parts(), response.audio_ms, self._rate.syllable_ms)
            if cut.parts:
                self._speaking.keep(response, cut.parts, cut.exact)
        if response.is_conversation:
            self._speaking.open_next(now_ms)

    def _send_audio(self, response: Response, pcm: np.ndarray, flags: Flags) -> None:
        request = response.request
        self._emitter.emit(SendAudio(request.id, request.stream, self._emitter.epoch, pcm, flags))

    def _no_sound(self) -> np.ndarray:
        return np.zeros((0, self._clock.model.channels), np.float32)
