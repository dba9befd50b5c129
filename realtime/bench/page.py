"""The report as one HTML page that needs nothing else: figures in tables, and the plots."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from typing import Any

from realtime.bench import metrics
from realtime.bench.chart import Point, Series, cumulative, line_chart, steps
from realtime.bench.summary import Round

MOST_LINES = 200
"""Streams that are drawn; a page with thousands of lines shows nothing."""

_STYLE = """
:root { color-scheme: light dark;
  --ink: #1c1917; --faint: #78716c; --rule: #e7e5e4; --paper: #fff; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #f5f5f4; --faint: #a8a29e; --rule: #44403c; --paper: #1c1917; }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; margin: 0; } h2 { font-size: 1.05rem; margin: 2rem 0 .5rem; }
p, dd { color: var(--faint); margin: .2rem 0; }
code, pre { font: 13px/1.4 ui-monospace, monospace; }
pre { white-space: pre-wrap; border: 1px solid var(--rule); padding: .6rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .15rem .8rem .15rem 0; border-bottom: 1px solid var(--rule); }
th:first-child, td:first-child { text-align: left; }
.tiles { display: flex; flex-wrap: wrap; gap: 1.5rem; margin: 1rem 0; }
.tiles div b { display: block; font-size: 1.5rem; font-variant-numeric: tabular-nums; }
.tiles div { color: var(--faint); } .tiles b { color: var(--ink); }
svg { width: 100%; height: auto; } svg text { font-size: 11px; fill: var(--faint); }
.grid { stroke: var(--rule); } .zero { stroke: var(--faint); }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: 1rem; padding: 0; margin: 0; }
.legend i { display: inline-block; width: .9rem; height: .2rem; margin-right: .4rem;
  vertical-align: middle; }
.none { font-style: italic; }
"""


def page(report: dict[str, Any], rounds: Sequence[Round]) -> str:
    """Return the page of a report, whose `summary` has the figures."""
    summary, title = report["summary"], f"moss-realtime bench: {report['load']['kind']}"
    sections = (
        f"<h1>{escape(title)}</h1>",
        f"<p>{escape(report['made_at'])} &middot; {escape(report['server']['url'])}</p>",
        _tiles(summary),
        f"<pre>{escape(report['command'])}</pre>",
        _section("Latency", "Percent of responses that took at most so long.", _latencies(rounds)),
        _section(
            "Lead of each stream",
            "Sound that came minus sound that a player has used; below zero a listener hears a "
            "gap. Time stands still while the server waits for text.",
            _leads(rounds),
        ),
        _section("Batch occupancy", "Rows in the engine, as the server tells.", _fills(rounds)),
        _section("Figures", "", _tables(summary)),
        _section("Conditions", "", f"<pre>{escape(_conditions(report))}</pre>"),
    )
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>'
    view = '<meta name="viewport" content="width=device-width, initial-scale=1">'
    body = f"<body>{''.join(sections)}</body>"
    return f'<!doctype html>\n<html lang="en"><head>{head}{view}</head>{body}</html>\n'


def _section(title: str, meaning: str, body: str) -> str:
    return f"<h2>{escape(title)}</h2><p>{escape(meaning)}</p>{body}"


def _tiles(summary: dict[str, Any]) -> str:
    responses, ttfa = summary["responses"], summary["client_clock_ms"]["ttfa"]
    continuity = summary["continuity"]["text_starvation_excluded"]
    tiles = (
        (f"{responses['ok']} / {responses['asked']}", "responses ok"),
        (_shown(ttfa.get("median")), "ms to first audio, median"),
        (_shown(ttfa.get("p95")), "ms to first audio, p95"),
        (_shown(continuity["c100"]), "% continuous (C100)"),
        (_shown(summary["throughput"]["audio_s_per_s"]), "seconds of sound a second"),
    )
    shown = "".join(f"<div><b>{escape(value)}</b>{escape(name)}</div>" for value, name in tiles)
    return f'<div class="tiles">{shown}</div>'


def _latencies(rounds: Sequence[Round]) -> str:
    ok = [trip for part in rounds for trip in part.trips if trip.is_ok]
    first = [value * 1000 for value in map(metrics.ttfa_s, ok) if value is not None]
    speakable = [value * 1000 for value in map(metrics.ttfa_speakable_s, ok) if value is not None]
    server = [trip.server.ttfa_ms for trip in ok if trip.server and trip.server.ttfa_ms is not None]
    gaps = [1000 * gap for trip in ok if not trip.slow_reader for gap in metrics.gaps_s(trip)]
    return line_chart(
        [
            Series(cumulative(first), "first audio, client's clock"),
            Series(cumulative(server), "first audio, server's clock"),
            Series(cumulative(speakable), "first audio since speakable text"),
            Series(cumulative(gaps), "gaps between pieces"),
        ],
        "milliseconds",
        "percent",
    )


def _leads(rounds: Sequence[Round]) -> str:
    whole = [trip for part in rounds for trip in part.trips if trip.is_whole]
    drawn = [trip for trip in whole if not trip.slow_reader][:MOST_LINES]
    lines = [Series(metrics.lead_s(metrics.fed_pieces(trip))) for trip in drawn]
    return line_chart(lines, "seconds since the first sound", "lead in seconds")


def _fills(rounds: Sequence[Round]) -> str:
    def line(name: str) -> list[Point]:
        fills = [fill for part in rounds for fill in part.fills]
        return steps([(fill.at_s, float(getattr(fill, name))) for fill in fills])

    names = {"running": "running", "queued": "queued", "parked": "parked (text or listener)"}
    lines = [Series(line(field), name) for field, name in names.items()]
    return line_chart(lines, "seconds of the run", "rows")


def _tables(summary: dict[str, Any]) -> str:
    rows: dict[str, dict[str, Any]] = {}
    for group in ("client_clock_ms", "server_clock_ms", "occupancy", "cancels", "continuity"):
        for name, figures in summary[group].items():
            if isinstance(figures, dict) and "n" in figures:
                rows[f"{group.removesuffix('_ms')}: {name}"] = figures
    rows["rtf"] = summary["rtf"]
    rows["registration_ms"] = summary["registration_ms"]
    players = {
        name: {f"start_{key}_ms": player["start_ms"].get(key) for key in ("median", "p95")}
        | {key: value for key, value in player.items() if key != "start_ms"}
        for name, player in summary["players"].items()
    }
    continuity = {name: summary["continuity"][name] for name in ("all", "text_starvation_excluded")}
    rest = {name: summary[name] for name in ("responses", "throughput", "errors")}
    return "".join(
        (
            _table(rows, ("n", "mean", "median", "std", "p50", "p90", "p95", "p99", "max")),
            "<p>Percent of responses without a gap longer than so many ms:</p>",
            _table(continuity, tuple(continuity["all"])),
            "<p>Listeners with a jitter buffer, as if text were never late:</p>",
            _table(players, tuple(next(iter(players.values())))),
            f"<pre>{escape(_lines(rest))}</pre>",
        )
    )


def _table(rows: dict[str, dict[str, Any]], columns: Sequence[str]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in ("", *columns))
    body = "".join(
        f"<tr><td>{escape(name)}</td>"
        + "".join(f"<td>{_shown(figures.get(column))}</td>" for column in columns)
        + "</tr>"
        for name, figures in rows.items()
    )
    return f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'


def _conditions(report: dict[str, Any]) -> str:
    names = ("load", "server", "client", "notes", "workload")
    return _lines({name: report[name] for name in names})


def _lines(values: dict[str, Any]) -> str:
    return "\n".join(f"{name}: {json.dumps(value)}" for name, value in values.items())


def _shown(value: Any) -> str:
    return "-" if value is None else f"{value:g}" if isinstance(value, float | int) else str(value)
