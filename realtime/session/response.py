"""One response: its text, its sound, where the listener is, and what it is waiting for."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from engine.api import Counts, Frames, Open, Sampling, Segment, U16Codes
from realtime.protocol.messages import Context, Metrics, ResponseSegment, Why
from realtime.session.cut import Part
from realtime.session.outcome import Outcome
from realtime.session.playback import PlaybackPosition
from realtime.session.restarts import Restarts
from realtime.session.settings import Voice
from realtime.session.sound import FrameClock
from realtime.session.text import SpokenText
from realtime.session.words import WordTimes


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """What was asked for, resolved. `history_context` is the model context it speaks in."""

    id: str
    item_id: str
    stream: int
    row: int
    context: Context
    commit: bool
    history_context: int
    voice: Voice | None
    sampling: Sampling
    seed: int
    max_frames: int
    max_ahead_ms: int
    acknowledged: bool  # the listener reports what it has played
    stall_flush_ms: int
    tells_words: bool
    metadata: dict[str, Any] | None
    started_ms: int


class Response:
    """A response that is queued, being spoken, or done but still playing."""

    def __init__(self, request: Request, text: SpokenText, clock: FrameClock, prefill_ids: int):
        self.request = request
        self.text = text
        self.words = WordTimes(text)
        self.playback = PlaybackPosition()
        self.opened_ms: int | None = None
        self.opening: Open | None = None  # what its first row was opened with
        self.restarts = Restarts()
        self.row_segment = 0  # the first segment of the row that speaks it now
        self.earlier: frozenset[str] = frozenset()  # the items that its own item will follow
        self.outcome: Outcome | None = None  # the engine is through with it
        self.samples = 0  # handed out so far
        self.sent_samples = 0
        self.is_cut = False  # its item was cut: the listener threw the rest away
        self.counts = Counts()
        self._clock = clock
        self._prefill_ids = prefill_ids
        self._codes: list[U16Codes] = []
        self._reported = 0  # segments
        self._reported_frame = 0
        self._parked: Why | None = None
        self._waiting_since_ms = request.started_ms
        self._last_text_ms = request.started_ms
        self._ready_ms: int | None = None  # when its text first allowed sound
        self._first_sound_ms: int | None = None
        self._last_sound_ms = 0

    @property
    def is_conversation(self) -> bool:
        """Whether it is part of the conversation, and so one after another."""
        return self.request.context == "conversation"

    @property
    def is_running(self) -> bool:
        """Whether the engine works on it."""
        return self.opened_ms is not None and self.outcome is None

    @property
    def codes(self) -> U16Codes:
        """All frames made so far, u16 `[F, n_vq]`."""
        return np.concatenate([self._clock.no_codes(), *self._codes])

    @property
    def chunk_frames(self) -> tuple[int, ...]:
        """How many frames came at a time."""
        return tuple(map(len, self._codes))

    @property
    def audio_ms(self) -> float:
        """Length of the sound made."""
        return self._clock.samples_ms(self.samples)

    def note_text(self, now_ms: int) -> None:
        """The client sent text, a flush or the end."""
        self._last_text_ms = now_ms
        spoken = self.text.spoken_segments
        may_sound = spoken and (spoken[0].over or len(spoken[0].ids) >= self._prefill_ids)
        if self._ready_ms is None and may_sound:
            self._ready_ms = now_ms

    def note_frames(self, event: Frames, now_ms: int) -> None:
        """The engine made sound."""
        self._codes.append(event.codes)
        self.samples += len(event.pcm)
        if self._first_sound_ms is None and len(event.pcm):
            self._first_sound_ms = now_ms
        self._last_sound_ms = now_ms

    def note_sent(self, samples: int, now_ms: int, not_before_ms: float) -> None:
        """Sound went out; playback cannot begin before `not_before_ms`."""
        self.sent_samples = max(self.sent_samples, min(samples, self.samples))
        sent_ms = self._clock.samples_ms(self.sent_samples)
        self.playback.sent(sent_ms, now_ms, not_before_ms)

    def note_parked(self, why: Why | None, now_ms: int) -> None:
        """The row waits for something, or (None) runs again."""
        self._parked = why
        self._waiting_since_ms = now_ms

    def note_segment(self, event: Segment, now_ms: int) -> None:
        """The engine is through with a segment."""
        end_ms = self._clock.length_ms(self.codes[: event.end_frame])
        index = self.row_segment + event.index
        self.text.spoken(index, event.end_frame, end_ms, event.text_ids_consumed)
        self._waiting_since_ms = now_ms

    def may_go_on(self) -> bool:
        """Whether another engine should try, now that this one died."""
        return self.restarts.allow(len(self.codes))

    def go_on_in(self, row: int, now_ms: int) -> None:
        """Another row speaks it from where the last one came to."""
        self.request = dataclasses.replace(self.request, row=row)
        self.text.replay(row)
        self.row_segment = sum(s.end_frame is not None for s in self.text.spoken_segments)
        self.note_parked(None, now_ms)

    def heard_samples(self, now_ms: int) -> int:
        """How much of its sound the listener has, as far as flow control is concerned."""
        if self.request.acknowledged:
            return self._clock.samples(self.playback.heard(now_ms).ms)
        return self.sent_samples

    @property
    def parked(self) -> Why | None:
        """What its row waits for."""
        return self._parked

    def starved_since_ms(self) -> int | None:
        """Since when the row has wanted text that has not come; None if it does not."""
        if self.opened_ms is None or self.text.ended or self.outcome:
            return None
        waiting = self._parked == "text" or self._is_before_prefill()
        since_ms = max(self.opened_ms, self._waiting_since_ms, self._last_text_ms)
        return since_ms if waiting else None

    def _is_before_prefill(self) -> bool:
        """All earlier segments are spoken and the open one has too few ids to begin."""
        spoken = self.text.spoken_segments
        unspoken = [segment for segment in spoken if segment.end_frame is None]
        if not unspoken:
            return True
        segment = unspoken[0]
        return not segment.over and len(segment.ids) < self._prefill_ids

    def stall_flush_due_ms(self) -> int | None:
        """When to flush, so that text already given is spoken and not held for more."""
        since_ms = self.starved_since_ms()
        segment = self.text.open_segment
        if since_ms is None or segment is None or segment.is_empty:
            return None
        return since_ms + self.request.stall_flush_ms if self.request.stall_flush_ms else None

    def text_timeout_due_ms(self, timeout_ms: int) -> int | None:
        """When to give up waiting for text."""
        if self.starved_since_ms() is None or self.opened_ms is None:
            return None
        return max(self.opened_ms, self._last_text_ms) + timeout_ms

    def parts(self) -> tuple[Part, ...]:
        """Return what was made, segment by segment."""
        codes, start = self.codes, 0
        parts = []
        for segment in self.text.spoken_segments:
            end = len(codes) if segment.end_frame is None else segment.end_frame
            if end > start:
                whole = segment.end_frame is not None
                ids = segment.ids[: segment.consumed] if whole else segment.ids
                wording = self.text.wording_of(segment) if whole else segment.wording
                parts.append(Part(wording, tuple(ids), codes[start:end], whole))
            start = end
        return tuple(parts)

    def new_segments(self) -> list[ResponseSegment]:
        """Return the reports of segments that are through since the last call."""
        reports = []
        for index in range(self._reported, len(self.text.segments)):
            segment = self.text.segments[index]
            start_frame, end_frame = self._reported_frame, segment.end_frame
            if segment.is_blank and segment.over:
                end_frame = start_frame
            if end_frame is None:
                break
            chars = len(self.text.wording_of(segment).written)
            reports.append(
                ResponseSegment(
                    reply_to=segment.reply_to,
                    response_id=self.request.id,
                    index=index,
                    audio_start_ms=self._clock.length_ms(self.codes[:start_frame]),
                    audio_end_ms=self._clock.length_ms(self.codes[:end_frame]),
                    chars=(segment.first_char, segment.first_char + chars),
                )
            )
            self._reported, self._reported_frame = index + 1, end_frame
        return reports

    def metrics(self) -> Metrics:
        """Return what it has cost."""
        first_ms, ready_ms = self._first_sound_ms, self._ready_ms
        opened_ms = self.request.started_ms if self.opened_ms is None else self.opened_ms
        text_to_audio_ms = rtf = None
        if first_ms is not None and ready_ms is not None:
            text_to_audio_ms = float(max(0, first_ms - ready_ms))
            waited_ms = self.counts.starved_ms + self.counts.flow_paused_ms
            busy_ms = self._last_sound_ms - max(ready_ms, opened_ms) - waited_ms
            rtf = max(0.0, busy_ms) / self.audio_ms if self.audio_ms else None
        return Metrics(
            queue_ms=opened_ms - self.request.started_ms + self.counts.queue_ms,
            text_to_audio_ms=text_to_audio_ms,
            ttfa_ms=None if first_ms is None else float(first_ms - self.request.started_ms),
            steps=self.counts.steps,
            rtf=rtf,
            starved_ms=self.counts.starved_ms,
            flow_paused_ms=self.counts.flow_paused_ms,
            text_tokens=self.counts.text_ids,
        )
