"""When each word of a response is heard: estimated as its sound goes out, never taken back."""

from __future__ import annotations

from realtime.protocol.messages import WordTime
from realtime.session.heard import total_units, words_from
from realtime.session.text import SpokenText, TextSegment

_SLACK_MS = 1e-6  # of sums of fractions


class WordTimes:
    """Times are milliseconds from the response's first sample; they never go back.

    A word is told once its sound is sent. While its segment is being spoken its length is that of
    its syllables; once the segment's end is known, the words left share what is left.
    """

    def __init__(self, text: SpokenText) -> None:
        self._text = text
        self._index = 0  # among the segments that are spoken
        self._spoken_chars = 0  # of that segment
        self._written_chars = 0
        self._at_ms = 0.0
        self._word_start_ms = 0.0
        self._unit_ms: float | None = None  # of a segment whose end is known

    def due(self, sent_ms: float, syllable_ms: float) -> tuple[WordTime, ...]:
        """Return the words that end by `sent_ms` and were not returned before."""
        told: list[WordTime] = []
        segments = self._text.spoken_segments
        while self._index < len(segments):
            segment = segments[self._index]
            if not self._tell(segment, sent_ms, syllable_ms, told) or segment.end_ms is None:
                break
            self._index += 1
            self._spoken_chars = self._written_chars = 0
            self._at_ms = self._word_start_ms = segment.end_ms
            self._unit_ms = None
        return tuple(told)

    def _tell(
        self, segment: TextSegment, sent_ms: float, syllable_ms: float, told: list[WordTime]
    ) -> bool:
        """Append the segment's words that are due; true when none is left."""
        wording = segment.wording
        if segment.end_ms is not None:
            wording = self._text.wording_of(segment)
            syllable_ms = self._shared_ms(wording.spoken, segment.end_ms)
        spoken = wording.spoken
        for word in words_from(spoken, self._spoken_chars):
            may_grow = word.end == len(spoken) and not segment.over
            end_ms = self._at_ms + word.syllables * syllable_ms
            if segment.end_ms is not None:
                end_ms = min(end_ms, segment.end_ms)
            elif may_grow:
                return False
            if end_ms > sent_ms + _SLACK_MS:
                return False
            written = wording.split(word.end)[0].written
            text = written[self._written_chars :].strip()
            if text:  # else only part of something that is heard as a whole
                told.append((text, self._word_start_ms, end_ms))
                self._written_chars = len(written)
            self._spoken_chars = word.end
            self._at_ms = end_ms + word.pause * syllable_ms
            if text:
                self._word_start_ms = self._at_ms
        return True

    def _shared_ms(self, spoken: str, end_ms: float) -> float:
        if self._unit_ms is None:
            self._at_ms = min(self._at_ms, end_ms)
            self._word_start_ms = min(self._word_start_ms, end_ms)
            units = total_units(spoken[self._spoken_chars :])
            self._unit_ms = (end_ms - self._at_ms) / units if units else 0.0
        return self._unit_ms
