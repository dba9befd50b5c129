"""A row's timeline in the JSON trace format that Perfetto and chrome://tracing open."""

from __future__ import annotations

from typing import Any

from realtime.server.row_log import Note, RowRecord

Event = dict[str, Any]

_TRACKS = {
    "state": 1,
    "text": 2,
    "sound": 3,
    "transport": 4,
}
_TRACK_OF = {
    **{"text": "text", "flush": "text", "end": "text", "cancel": "text"},
    **{"sound": "sound", "segment": "sound"},
    **{"sent": "transport", "played": "transport"},
}
_UNITS = {"text": "ids", "segment": "index", "sent": "samples", "played": "samples"}


def trace(record: RowRecord, now_ns: int) -> dict[str, Any]:
    """Return the trace: states as slices, what happened as instants, the lead as a counter.

    Time 0 is the row's `Open`; a row that still runs ends at `now_ns`.
    """
    name = record.name or f"row {record.row}"
    events = [_meta("process_name", 0, name)]
    events += [_meta("thread_name", number, track) for track, number in _TRACKS.items()]
    events += _states(record, now_ns)
    events += [_instant(record, note) for note in record.notes if note.kind in _TRACK_OF]
    events += _leads(record)
    facts = {
        "row": record.row,
        "name": record.name,
        "model": record.model,
        "lane": record.lane,
        "reason": record.reason,
    }
    return {"displayTimeUnit": "ms", "otherData": facts, "traceEvents": events}


def _states(record: RowRecord, now_ns: int) -> list[Event]:
    """Queued, prefill, then speaking with its pauses; slices that follow each other."""
    end_ns = record.ended_ns or now_ns
    queued_ns = min(record.opened_ns + int(record.counts.queue_ms * 1e6), end_ns)
    changes = [(record.opened_ns, "queued"), (queued_ns, "prefill")]
    if record.first_sound_ns is not None:
        changes.append((record.first_sound_ns, "speaking"))
    for note in record.notes:
        if note.kind == "parked":
            changes.append((note.at_ns, f"waiting for {_WAITS[str(note.value)]}"))
        elif note.kind == "resumed":
            spoke = record.first_sound_ns is not None and note.at_ns >= record.first_sound_ns
            changes.append((note.at_ns, "speaking" if spoke else "prefill"))
    changes.sort(key=lambda change: change[0])
    ends = [at_ns for at_ns, _ in changes[1:]] + [end_ns]
    return [
        {
            **_place(record, at_ns, "state"),
            **{"ph": "X", "name": state, "dur": (until_ns - at_ns) / 1000},
        }
        for (at_ns, state), until_ns in zip(changes, ends, strict=True)
        if until_ns > at_ns
    ]


_WAITS = {"text": "text", "flow": "the listener"}


def _instant(record: RowRecord, note: Note) -> Event:
    value = {"ms": 1000 * int(note.value) / record.rate_hz} if note.kind == "sound" else {}
    if note.kind in _UNITS:
        value = {_UNITS[note.kind]: float(note.value)}
    place = _place(record, note.at_ns, _TRACK_OF[note.kind])
    return place | {"ph": "i", "s": "t", "name": note.kind, "args": value}


def _leads(record: RowRecord) -> list[Event]:
    """What a listener has left: just before and just after each sound."""
    again = RowRecord(record.row, record.opened_ns)
    again.rate_hz = record.rate_hz
    events = []
    for note in record.notes:
        if note.kind in ("parked", "resumed"):
            why = note.value if note.kind == "parked" else None
            again.park(why, note.at_ns)  # type: ignore[arg-type]
        elif note.kind == "sound":
            left_s = again.sound(int(note.value), note.at_ns)
            for lead_s in (left_s, again.lead_s(note.at_ns)):
                if lead_s is not None:
                    counter = {"ph": "C", "name": "lead", "args": {"ms": 1000 * lead_s}}
                    events.append(_place(record, note.at_ns, "sound") | counter)
    return events


def _place(record: RowRecord, at_ns: int, track: str) -> Event:
    return {"pid": 1, "tid": _TRACKS[track], "ts": (at_ns - record.opened_ns) / 1000}


def _meta(kind: str, thread: int, name: str) -> Event:
    return {"ph": "M", "pid": 1, "tid": thread, "name": kind, "args": {"name": name}}
