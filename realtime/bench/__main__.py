"""`moss-realtime bench`: put a load on a server, and report what its listeners got."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import os
import platform
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from realtime.bench.arguments import KEY_VARIABLE, parse
from realtime.bench.page import page
from realtime.bench.run import Run
from realtime.bench.summary import Round, summarise


def main(words: Sequence[str] | None = None) -> int:
    """Measure, write `report.json` and `report.html`, and print the figures."""
    words = sys.argv[1:] if words is None else list(words)
    asked, api_key = parse(words), os.environ.get(KEY_VARIABLE)
    try:
        models = _models(asked.server, api_key)
        rounds = asyncio.run(Run(asked, api_key).rounds())
    except (ValueError, httpx.HTTPError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    report = {
        "benchmark": "load",
        "made_at": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        "command": shlex.join(("moss-realtime", "bench", *words)),
        "load": _load_of(asked),
        "server": {"url": asked.server, "models": models},
        "client": {"python": platform.python_version(), "cpus": os.cpu_count()},
        "notes": dict(note.partition("=")[::2] for note in asked.note),
        "workload": "pseudo sentences and speakers, frozen by the seed; a token is a word",
        "summary": summarise(rounds, dict(asked.slo)),
    }
    _write(asked.out, report, rounds, with_trips=asked.trips)
    print(json.dumps(report["summary"], indent=1))
    print(f"the report is {asked.out / 'report.html'}", file=sys.stderr)
    return 0


def _write(
    directory: Path, report: dict[str, Any], rounds: Sequence[Round], *, with_trips: bool
) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    trips = [dataclasses.asdict(trip) for part in rounds for trip in part.trips]
    fills = [dataclasses.asdict(fill) for part in rounds for fill in part.fills]
    whole = report | ({"trips": trips, "occupancy": fills} if with_trips else {})
    (directory / "report.json").write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    (directory / "report.html").write_text(page(report, rounds), encoding="utf-8")


def _models(url: str, api_key: str | None) -> list[Any]:
    """What the server says that it runs; raises `httpx.HTTPError` where there is no server."""
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    answer = httpx.get(f"{url.rstrip('/')}/v1/models", headers=headers, timeout=30)
    if answer.status_code in (401, 403):
        raise ValueError(f"{url} wants a key; set {KEY_VARIABLE}")
    try:
        return [model["id"] for model in answer.json()["data"]]
    except (ValueError, KeyError, TypeError):
        return []


def _load_of(asked: argparse.Namespace) -> dict[str, Any]:
    hidden = {"server", "out", "note", "trips", "load"}
    settings = {name: value for name, value in vars(asked).items() if name not in hidden}
    return {"kind": asked.load} | settings


if __name__ == "__main__":
    sys.exit(main())
