"""What was sent and may not have arrived: kept until the server has answered something later."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Iterator

_AUDIO = -1


@dataclasses.dataclass(frozen=True, slots=True)
class Unconfirmed:
    """A message (`m`) or a frame of user audio (`seq`), encoded."""

    data: bytes
    m: int = _AUDIO
    seq: int = _AUDIO
    event_id: str | None = None
    raises_epoch: bool = False


class UnconfirmedMessages:
    """In the order of sending. The server applies in that order, so an answer confirms it all."""

    def __init__(self) -> None:
        self._entries: deque[Unconfirmed] = deque()

    def __iter__(self) -> Iterator[Unconfirmed]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entry: Unconfirmed) -> None:
        """Keep what is being sent."""
        self._entries.append(entry)

    def answered(self, event_id: str) -> None:
        """The server answered the message with this `event_id`, so all up to it was applied."""
        for index, entry in enumerate(self._entries):
            if entry.event_id == event_id:
                for _ in range(index + 1):
                    self._entries.popleft()
                return

    def applied(self, last_m: int, next_input_seq: int) -> None:
        """The server has applied all up to message `last_m`, and frames before that number."""
        self._entries = deque(
            entry
            for entry in self._entries
            if (entry.m > last_m if entry.m != _AUDIO else entry.seq >= next_input_seq)
        )
