"""The text of one response on its way to the engine: segments, ids, and what they were."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from engine.api import Command, End, Feed, Flush, I32Grid
from engine.text.incremental import IncrementalTokenizer
from engine.text.plain import PlainTokenizer, join_surrogates
from realtime.protocol.errors import ProtocolError


@dataclasses.dataclass(slots=True)
class TextSegment:
    """A stretch of text between flushes.

    `first_char` counts code points of the response's text. `over`: no more text. `end_frame` and
    `consumed` come from the engine; a blank segment is never given to it.
    """

    first_char: int
    raw: str = ""
    ids: list[int] = dataclasses.field(default_factory=list)
    over: bool = False
    reply_to: str | None = None
    end_frame: int | None = None
    consumed: int = 0

    @property
    def is_blank(self) -> bool:
        """Whether there is nothing to speak."""
        return not self.raw.strip()

    @property
    def text(self) -> str:
        """The text, halves of surrogate pairs joined."""
        return join_surrogates(self.raw)


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
    ) -> None:
        self.segments: list[TextSegment] = []
        self.commands: list[Command] = []
        self.chars = 0
        self.ended = False
        self._row = row
        self._tokenizer = tokenizer
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
        segment = self.open_segment or self._begin()
        segment.raw += delta
        self.chars += len(delta)
        self._held += self._incremental.feed(delta)
        self._feed(segment)

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

    def spoken(self, index: int, end_frame: int, consumed: int) -> None:
        """Note that the engine has spoken its segment `index`, `consumed` ids of it."""
        spoken = self.spoken_segments
        if index >= len(spoken):
            return
        segment = spoken[index]
        segment.end_frame = end_frame
        segment.consumed = min(consumed, len(segment.ids))
        if not segment.over:
            self._carry_on_after(segment)

    def text_of(self, segment: TextSegment) -> str:
        """The part of a spoken segment's text whose ids were consumed."""
        if segment.consumed >= len(segment.ids):
            return segment.text
        return self._tokenizer.decode(segment.ids[: segment.consumed]).rstrip("\ufffd")

    def _begin(self) -> TextSegment:
        self._incremental = IncrementalTokenizer(self._tokenizer)
        self.segments.append(TextSegment(first_char=self.chars))
        return self.segments[-1]

    def _finish(self, segment: TextSegment, reply_to: str | None) -> None:
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
        held_text = self._tokenizer.decode(held_ids)
        segment.over = True
        segment.raw = segment.raw[: max(0, len(segment.raw) - len(held_text))]
        self.commands.append(Flush(self._row, self._next_prefix()))
        if held_text:
            following = self._begin()
            following.first_char -= len(held_text)
            following.raw = held_text
            self._held = held_ids
            self._feed(following)
