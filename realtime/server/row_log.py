"""What became of each row: its timeline on the server's clock, from `Open` to its end.

The bridge tells of every command and event as it passes; a log line, the metrics, the snapshot of
the engine and the trace of a response are all drawn from the records here. No text is in them.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Literal

from engine.api import (
    Cancel,
    Command,
    Counts,
    Done,
    End,
    Feed,
    Flush,
    Frames,
    Lane,
    ModelInfo,
    Open,
    Parked,
    ParkReason,
    Played,
    Refused,
    Resumed,
    Segment,
    Sent,
)

logger = logging.getLogger(__name__)

KEPT_RECORDS = 64
"""Rows that are over and can still be looked at."""

MOST_NOTES = 4096
"""Of one row; a longer one keeps its beginning, its sums and its end."""

Kind = Literal[
    "text",
    "flush",
    "end",
    "cancel",
    "sent",
    "played",
    "sound",
    "parked",
    "resumed",
    "segment",
    "refused",
    "done",
]


@dataclasses.dataclass(frozen=True, slots=True)
class Note:
    """Something that happened. `value` counts ids or samples, or names a reason."""

    at_ns: int
    kind: Kind
    value: int | str = 0


class RowRecord:
    """One row. Times are of the monotonic clock; `name` says whose response it is."""

    def __init__(self, row: int, now_ns: int) -> None:
        self.row = row
        self.name = ""
        self.lane: Lane = "throughput"
        self.model = ""
        self.rate_hz = 0
        self.context_rows = 0
        self.opened_ns = now_ns
        self.ended_ns: int | None = None
        self.first_text_ns: int | None = None
        self.first_sound_ns: int | None = None
        self.cancelled_ns: int | None = None
        self.samples = 0
        self.sent_samples = 0
        self.parked: ParkReason | None = None
        self.least_lead_s: float | None = None
        self.reason = ""
        self.counts = Counts()
        self.notes: list[Note] = []
        self._parked_since_ns = 0
        self._starved_ns = 0  # since the first sound: no listener waits for sound meanwhile

    def add(self, note: Note) -> None:
        """Keep a note, as long as there is room."""
        if len(self.notes) < MOST_NOTES or note.kind in ("done", "refused"):
            self.notes.append(note)

    @property
    def audio_s(self) -> float:
        """Length of the sound made so far."""
        return self.samples / self.rate_hz if self.rate_hz else 0.0

    @property
    def cancel_ms(self) -> float | None:
        """From the cancellation to the end, when the row is in no step and its places are free."""
        if self.cancelled_ns is None or self.ended_ns is None:
            return None
        return (self.ended_ns - self.cancelled_ns) / 1e6

    def lead_s(self, now_ns: int) -> float | None:
        """Sound that a listener who never paused has left; None before the first.

        Time stands still for it while the row waits for text.
        """
        if self.first_sound_ns is None:
            return None
        starved_ns = self._starved_ns
        if self.parked == "text":
            starved_ns += now_ns - max(self._parked_since_ns, self.first_sound_ns)
        return self.audio_s - (now_ns - self.first_sound_ns - starved_ns) / 1e9

    def park(self, why: ParkReason | None, now_ns: int) -> None:
        """It waits, or (None) goes on."""
        if self.parked == "text" and self.first_sound_ns is not None:
            self._starved_ns += now_ns - max(self._parked_since_ns, self.first_sound_ns)
        self.parked, self._parked_since_ns = why, now_ns

    def sound(self, samples: int, now_ns: int) -> float | None:
        """Sound came; return the lead that was left of what came before."""
        left_s = self.lead_s(now_ns)
        if self.first_sound_ns is None:
            self.first_sound_ns = now_ns
        self.samples += samples
        if left_s is not None:
            self.least_lead_s = (
                left_s if self.least_lead_s is None else min(left_s, self.least_lead_s)
            )
        return left_s

    def line(self) -> str:
        """The timeline in one line of `name=value`; milliseconds count from the row's `Open`."""
        counts = self.counts
        fields = {
            **{"row": self.row, "lane": self.lane, "model": self.model, "reason": self.reason},
            **{"queue_ms": counts.queue_ms, "first_text_ms": self._since_ms(self.first_text_ns)},
            "first_sound_ms": self._since_ms(self.first_sound_ns),
            **{"total_ms": self._since_ms(self.ended_ns), "cancel_ms": self.cancel_ms},
            **{"audio_ms": 1000 * self.audio_s, "sent_ms": self._ms(self.sent_samples)},
            "least_lead_ms": None if self.least_lead_s is None else 1000 * self.least_lead_s,
            **{"starved_ms": counts.starved_ms, "flow_paused_ms": counts.flow_paused_ms},
            **{"context_rows": self.context_rows, "prefill_rows": counts.prefill_grid_rows},
            **{"reused_rows": counts.reused_grid_rows, "text_ids": counts.text_ids},
            **{"steps": counts.steps, "frames": counts.frames},
        }
        shown = " ".join(f"{name}={_shown(value)}" for name, value in fields.items())
        return f"{self.name} {shown}".lstrip()

    def _since_ms(self, at_ns: int | None) -> float | None:
        return None if at_ns is None else (at_ns - self.opened_ns) / 1e6

    def _ms(self, samples: int) -> float:
        return 1000 * samples / self.rate_hz if self.rate_hz else 0.0


class RowLog:
    """Records of the rows that run, and of the last ones that are over."""

    def __init__(self, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self.running: dict[int, RowRecord] = {}
        self.over: OrderedDict[int, RowRecord] = OrderedDict()
        self.on_lead: Callable[[RowRecord, float], None] = lambda record, lead_s: None
        self.on_end: Callable[[RowRecord], None] = lambda record: None
        self._now_ns = now_ns

    def find(self, row: int) -> RowRecord | None:
        """The record of a row, while it is kept."""
        return self.running.get(row) or self.over.get(row)

    def name(self, row: int, name: str) -> None:
        """Say whose response a row is, before or after its `Open`."""
        self._record(row).name = name

    def opened(self, command: Open, model: ModelInfo | None) -> None:
        """A row is opened."""
        record = self._record(command.row)
        record.opened_ns = self._now_ns()
        record.lane, record.model = command.lane, command.model
        record.rate_hz = model.rate_hz if model else 0
        record.context_rows = len(command.grid)

    def command(self, command: Command) -> None:
        """A command passes; those of no row, or of one that is over, are nothing."""
        match command:
            case Feed():
                self._note(command.row, "text", len(command.ids))
            case Flush():
                self._note(command.row, "flush")
            case End():
                self._note(command.row, "end")
            case Cancel():
                self._note(command.row, "cancel")
            case Sent():
                self._note(command.row, "sent", command.samples)
            case Played():
                self._note(command.row, "played", command.samples)

    def event(self, event: Refused | Frames | Parked | Resumed | Segment | Done) -> None:
        """An event of a row passes."""
        record = self.running.get(event.row)
        if record is None:
            return
        now_ns = self._now_ns()
        match event:
            case Frames():
                record.add(Note(now_ns, "sound", len(event.pcm)))
                left_s = record.sound(len(event.pcm), now_ns) if len(event.pcm) else None
                if left_s is not None and record.lane == "live":
                    self.on_lead(record, left_s)
            case Parked():
                record.park(event.why, now_ns)
                record.add(Note(now_ns, "parked", event.why))
            case Resumed():
                record.park(None, now_ns)
                record.add(Note(now_ns, "resumed", event.why))
            case Segment():
                record.add(Note(now_ns, "segment", event.index))
            case Refused():
                self._end(record, Note(now_ns, "refused", event.code), f"refused:{event.code}")
            case Done():
                record.counts = event.counts
                self._end(record, Note(now_ns, "done", event.reason), event.reason)

    def engine_died(self) -> None:
        """What still runs, though nobody listens any more, is over too."""
        for record in list(self.running.values()):
            self._end(record, Note(self._now_ns(), "done", "failed"), "failed")

    def _note(self, row: int, kind: Kind, value: int = 0) -> None:
        record = self.running.get(row)
        if record is None:
            return
        now_ns = self._now_ns()
        record.add(Note(now_ns, kind, value))
        if kind == "text" and record.first_text_ns is None:
            record.first_text_ns = now_ns
        elif kind == "cancel" and record.cancelled_ns is None:
            record.cancelled_ns = now_ns
        elif kind == "sent":
            record.sent_samples = max(record.sent_samples, value)

    def _end(self, record: RowRecord, note: Note, reason: str) -> None:
        record.park(None, note.at_ns)
        record.add(note)
        record.ended_ns, record.reason = note.at_ns, reason
        del self.running[record.row]
        self.over[record.row] = record
        if len(self.over) > KEPT_RECORDS:
            self.over.popitem(last=False)
        logger.info(record.line())
        self.on_end(record)

    def _record(self, row: int) -> RowRecord:
        if row not in self.running:
            self.running[row] = RowRecord(row, self._now_ns())
        return self.running[row]


def _shown(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.1f}" if isinstance(value, float) else str(value)
