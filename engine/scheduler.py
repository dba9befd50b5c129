"""Which rows hold a slot, and which of them run in a tick: first come, first served."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator

from engine.row import Row, State

WAKE_FRAMES = 2
"""A row paused by flow control wakes when the listener has taken this many frames."""


class Scheduler:
    """Rows by id, the queue, and the slots 1..max_rows; a row takes the lowest free one."""

    def __init__(self, max_rows: int, max_queued_rows: int) -> None:
        self.max_rows = max_rows
        self.rows: dict[int, Row] = {}
        self._max_queued_rows = max_queued_rows
        self._queue: deque[Row] = deque()
        self._free = list(range(1, max_rows + 1))
        self._placed: dict[int, Row] = {}  # by row id, oldest first

    @property
    def queued(self) -> int:
        """Rows that wait for a slot."""
        return len(self._queue)

    @property
    def free(self) -> int:
        """Slots that nobody holds."""
        return len(self._free)

    @property
    def placed(self) -> list[Row]:
        """Rows that hold a slot, oldest first."""
        return list(self._placed.values())

    def enqueue(self, row: Row) -> bool:
        """Take a row in; False when there is no room for one more."""
        if len(self._queue) >= len(self._free) + self._max_queued_rows:
            return False
        self.rows[row.id] = row
        self._queue.append(row)
        return True

    def admit(self) -> Iterator[Row]:
        """Give free slots to the rows that have waited longest."""
        while self._queue and self._free:
            row = self._queue.popleft()
            row.slot = heapq.heappop(self._free)
            self._placed[row.id] = row
            row.enter(State.PREFILLING)
            yield row

    def remove(self, row: Row) -> None:
        """Forget a row; its slot is free."""
        del self.rows[row.id]
        if row.slot:
            del self._placed[row.id]
            heapq.heappush(self._free, row.slot)
        else:
            self._queue.remove(row)

    def next_prefill(self) -> Row | None:
        """The oldest row with grid rows to prefill."""
        return next((row for row in self._placed.values() if len(row.pending)), None)

    def choose(
        self, room_frames: Callable[[Row], float], park: Callable[[Row, State], None]
    ) -> list[Row]:
        """Rows that take a step now; rows that cannot are parked.

        `room_frames` says how many frames a listener may still be given. A row that flow control
        has paused waits for `WAKE_FRAMES`, but comes along earlier when others run anyway: batches
        stay full, and rows that listen at the same pace keep stepping together.
        """
        eager, along = [], []
        for row in self._placed.values():
            if row.state in (State.PREFILLING, State.FINISHING) or row.wants_draw:
                continue
            room = room_frames(row)
            if not row.text.can_step:
                park(row, State.PARKED_TEXT)
            elif room < 1:
                park(row, State.PARKED_FLOW)
            elif room < WAKE_FRAMES and row.state is State.PARKED_FLOW:
                along.append(row)
            else:
                eager.append(row)
        return eager + along if eager else []
