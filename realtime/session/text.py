"""The text of one response on its way to the engine: segments, ids, and what they were."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from engine.api import Command, End, Feed, Flush, I32Grid
from engine.text.incremental import IncrementalTokenizer
from engine.text.normalise.normaliser import AsWritten, Normaliser
from engine.text.plain import PlainTokenizer, join_surrogates
from engine.text.wording import EMPTY, Piece, Wording, merged, spoken_chars
from realtime.protocol.errors import ProtocolError


@dataclasses.dataclass(slots=True)
class TextSegment:
    """A stretch of text between flushes.

    `first_char` counts code points of the response's text as it was written. `is_empty`: nothing
    was written but white space; `is_blank`: nothing of it is spoken. `over`: no more text.
    `end_frame` and `consumed` come from the engine; a blank segment is never given to it.
    """

    first_char: int
    wording: Wording = EMPTY
    is_empty: bool = True
    is_blank: bool = True
    ids: list[int] = dataclasses.field(default_factory=list)
    over: bool = False
    reply_to: str | None = None
    end_frame: int | None = None
    end_ms: float | None = None  # from the response's first sample
    consumed: int = 0

    def add(self, pieces: Sequence[Piece]) -> None:
        """Append to the text."""
        self.wording = Wording(tuple(merged([*self.wording.pieces, *pieces])))
        self.is_empty = self.is_empty and not any(piece.written.strip() for piece in pieces)
        self.is_blank = self.is_blank and not any(piece.spoken.strip() for piece in pieces)


class SpokenText:
    """Cuts a response's text into segments and makes the row's text commands of it.

    `commands` are those the engine has not been given yet.
    """

    def __init__(
        self,
        row: int,
        tokenizer: PlainTokenizer,
        next_prefix: Callable[[], I32Grid],
        max_chars: int,
        normaliser: Normaliser | AsWritten,
    ) -> None:
        self.segments: list[TextSegment] = []
        self.commands: list[Command] = []
        self.chars = 0
        self.ended = False
        self._row = row
        self._tokenizer = tokenizer
        self._normaliser = normaliser
        self._high_surrogate = ""
        self._incremental = IncrementalTokenizer(tokenizer)
        self._held: list[int] = []
        self._next_prefix = next_prefix
        self._max_chars = max_chars
        self._is_full = False

    @property
    def open_segment(self) -> TextSegment | None:
        """The segment that text is added to, if one has begun."""
        if self.segments and not self.segments[-1].over:
            return self.segments[-1]
        return None

    @property
    def spoken_segments(self) -> list[TextSegment]:
        """The segments the engine knows, in its order."""
        return [segment for segment in self.segments if not segment.is_blank]

    @property
    def is_blank(self) -> bool:
        """Whether nothing is to be spoken so far."""
        return not self.spoken_segments

    def check_room(self, chars: int) -> None:
        """Raise `ProtocolError` if `chars` more would be too many, or once have been.

        Text after a refused delta would be spoken with a hole before it.
        """
        self._is_full = self._is_full or self.chars + chars > self._max_chars
        if self._is_full:
            raise ProtocolError(
                "text_too_long",
                f"a response may have {self._max_chars} characters; it has {self.chars} and "
                f"{chars} more were sent (they are not applied)",
                param="delta",
            )

    def add(self, delta: str) -> None:
        """Append text; raises `ProtocolError` and changes nothing when it is too long."""
        self.check_room(len(delta))
        self.chars += len(delta)
        segment = self.open_segment or self._begin()
        segment.is_empty = segment.is_empty and not delta.strip()
        self._speak(segment, self._normaliser.feed(self._join_surrogates(delta)))

    def flush(self, reply_to: str | None) -> None:
        """End the segment; what follows opens another."""
        segment = self.open_segment or self._begin()
        self._finish(segment, reply_to)
        if not segment.is_blank:
            self.commands.append(Flush(self._row, self._next_prefix()))

    def end(self, reply_to: str | None) -> None:
        """End the text."""
        if self.open_segment:
            self._finish(self.open_segment, reply_to)
        self.ended = True
        self.commands.append(End(self._row))

    def replay(self, row: int) -> None:
        """Another row goes on after the last segment that is through: its commands come again."""
        self._row, self.commands = row, []
        left = [segment for segment in self.spoken_segments if segment.end_frame is None]
        for segment in left:
            if segment.ids:
                self.commands.append(Feed(row, tuple(segment.ids)))
            if segment.over and not (self.ended and segment is left[-1]):
                self.commands.append(Flush(row, self._next_prefix()))
        if self.ended:
            self.commands.append(End(row))

    def spoken(self, index: int, end_frame: int, end_ms: float, consumed: int) -> None:
        """Note that the engine has spoken its segment `index`, `consumed` ids of it."""
        spoken = self.spoken_segments
        if index >= len(spoken):
            return
        segment = spoken[index]
        segment.end_frame, segment.end_ms = end_frame, end_ms
        segment.consumed = min(consumed, len(segment.ids))
        if not segment.over:
            self._carry_on_after(segment)

    def wording_of(self, segment: TextSegment) -> Wording:
        """The part of a spoken segment's text whose ids were consumed."""
        if segment.consumed >= len(segment.ids):
            return segment.wording
        return self._split_after(segment, segment.ids[: segment.consumed])[0]

    def _split_after(self, segment: TextSegment, ids: list[int]) -> tuple[Wording, Wording]:
        decoded = self._tokenizer.decode(ids).rstrip("\ufffd")
        return segment.wording.split(spoken_chars(segment.wording.spoken, decoded))

    def _begin(self) -> TextSegment:
        self._incremental = IncrementalTokenizer(self._tokenizer)
        last = self.segments[-1] if self.segments else TextSegment(0)
        self.segments.append(TextSegment(last.first_char + len(last.wording.written)))
        return self.segments[-1]

    def _join_surrogates(self, delta: str) -> str:
        """Return the text with the halves of pairs joined; one that came last waits."""
        text = self._high_surrogate + delta
        self._high_surrogate = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        return join_surrogates(text.removesuffix(self._high_surrogate))

    def _speak(self, segment: TextSegment, pieces: list[Piece]) -> None:
        segment.add(pieces)
        self._held += self._incremental.feed("".join(piece.spoken for piece in pieces))
        self._feed(segment)

    def _finish(self, segment: TextSegment, reply_to: str | None) -> None:
        lone, self._high_surrogate = self._high_surrogate, ""
        rest = self._normaliser.feed(join_surrogates(lone)) + self._normaliser.flush()
        self._speak(segment, rest)
        self._held += self._incremental.finish()
        self._feed(segment)
        self._held = []
        segment.over = True
        segment.reply_to = reply_to

    def _feed(self, segment: TextSegment) -> None:
        """White space alone is held back: a segment of nothing else is not spoken."""
        if self._held and not segment.is_blank:
            segment.ids += self._held
            self.commands.append(Feed(self._row, tuple(self._held)))
            self._held = []

    def _carry_on_after(self, segment: TextSegment) -> None:
        """The model ended a segment before its text did: the text still held opens the next."""
        held_ids = self._incremental.finish()
        segment.wording, rest = self._split_after(segment, segment.ids)
        segment.over = True
        self.commands.append(Flush(self._row, self._next_prefix()))
        if held_ids or self._normaliser.held or self._high_surrogate:
            following = self._begin()
            following.add(rest.pieces)
            following.is_empty = not (rest.written + self._normaliser.held).strip()
            self._held = held_ids
            self._feed(following)
