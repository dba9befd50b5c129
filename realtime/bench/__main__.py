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
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import httpx

from realtime.bench import workload
from realtime.bench.loads import Clock, closed_loop, open_loop
from realtime.bench.occupancy import watched
from realtime.bench.page import page
from realtime.bench.rest import RestOptions, RestTarget
from realtime.bench.socket import SocketTarget
from realtime.bench.summary import Round, summarise
from realtime.bench.trip import Trip
from realtime.bench.voice_agent import Dialling, run_agents
from realtime.sdk.client import socket_url
from realtime.sdk.link import Address

KEY_VARIABLE = "MOSS_API_KEY"
DEFAULT_SEED = 20261


class Run:
    """One run as it was asked for."""

    def __init__(self, asked: argparse.Namespace, api_key: str | None) -> None:
        self._asked = asked
        self._api_key = api_key
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._address = Address(socket_url(asked.server), headers)
        self._clock = Clock()

    async def rounds(self) -> list[Round]:
        """The warm-up, of which nothing is kept, and all rounds."""
        asked = self._asked
        if asked.warm_up:
            texts = workload.sentences(asked.warm_up, asked.seed - 1)
            async with self._target() as target:
                await closed_loop(target.speak, texts, 1)
        return [await self._round(number) for number in range(asked.rounds)]

    async def _round(self, number: int) -> Round:
        seed = self._asked.seed + number
        async with watched(self._asked.server, self._api_key, self._clock) as view:
            started_s = self._clock()
            trips = await self._load(seed)
            wall_s = self._clock() - started_s
        return Round(tuple(trips), wall_s, tuple(view.fills), tuple(view.cancel_ms.values()))

    async def _load(self, seed: int) -> list[Trip]:
        asked = self._asked
        if asked.load == "voice-agent":
            agents = workload.agents(asked.sessions, asked.turns, seed)
            dialling = Dialling(self._address, asked.voice, asked.max_ahead_ms)
            return await run_agents(dialling, agents, self._clock)
        async with self._target() as target:
            if asked.load == "closed-loop":
                texts = workload.sentences(asked.requests, seed)
                return await closed_loop(target.speak, texts, asked.concurrency)
            if asked.load == "poisson":
                times_s = workload.arrivals_s(asked.requests, asked.per_s, seed)
            else:
                times_s = workload.bursts_s(asked.bursts, asked.size, asked.every_s)
            texts = workload.sentences(len(times_s), seed)
            return await open_loop(target.speak, texts, times_s, self._clock)

    def _target(self) -> AbstractAsyncContextManager[SocketTarget | RestTarget]:
        asked = self._asked
        if getattr(asked, "endpoint", "ws") == "ws":
            return SocketTarget(self._address, asked.voice, self._clock)
        options = RestOptions(
            response_format=asked.format,
            stream_format="sse" if asked.sse else "audio",
            rate_hz=asked.rate_hz,
            channels=asked.channels,
            voice=asked.voice,
            extra=json.loads(asked.extra),
        )
        return RestTarget(asked.server, self._api_key, options, self._clock)


def main(words: Sequence[str] | None = None) -> int:
    """Measure, write `report.json` and `report.html`, and print the figures."""
    words = sys.argv[1:] if words is None else list(words)
    asked = _parser().parse_args(words)
    try:
        json.loads(asked.extra) if "extra" in asked else None
        models = _models(asked.server, os.environ.get(KEY_VARIABLE))
        run = Run(asked, os.environ.get(KEY_VARIABLE))
    except (ValueError, httpx.HTTPError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    rounds = asyncio.run(run.rounds())
    report = {
        "benchmark": "load",
        "made_at": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        "command": shlex.join(("moss-realtime", "bench", *words)),
        "load": _load_of(asked),
        "server": {"url": asked.server, "models": models},
        "client": {"python": platform.python_version(), "cpus": os.cpu_count()},
        "notes": dict(note.partition("=")[::2] for note in asked.note),
        "workload": "pseudo sentences, frozen by the seed; a token is a word",
        "summary": summarise(rounds),
    }
    asked.out.mkdir(parents=True, exist_ok=True)
    trips = [dataclasses.asdict(trip) for part in rounds for trip in part.trips]
    fills = [dataclasses.asdict(fill) for part in rounds for fill in part.fills]
    whole = report | ({"trips": trips, "occupancy": fills} if asked.trips else {})
    (asked.out / "report.json").write_text(json.dumps(whole, indent=1) + "\n")
    (asked.out / "report.html").write_text(page(report, rounds), encoding="utf-8")
    print(json.dumps(report["summary"], indent=1))
    print(f"the report is {asked.out / 'report.html'}", file=sys.stderr)
    return 0


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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="moss-realtime bench",
        description=f"Put a load on a server; {KEY_VARIABLE} holds the key it wants.",
    )
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--server", required=True, metavar="URL")
    common.add_argument("--out", type=Path, required=True, help="directory of the report")
    common.add_argument("--voice", help="name of a voice; else the server's default")
    common.add_argument("--seed", type=int, default=DEFAULT_SEED, help="freezes the workload")
    common.add_argument("--rounds", type=_count, default=1)
    common.add_argument("--warm-up", type=int, default=4, help="requests before, not counted")
    common.add_argument("--note", action="append", default=[], metavar="NAME=VALUE")
    common.add_argument("--trips", action="store_true", help="every response in the JSON")
    ways = argparse.ArgumentParser(add_help=False)
    ways.add_argument("--endpoint", choices=("ws", "speech"), default="ws")
    ways.add_argument("--format", choices=("pcm", "wav"), default="pcm", help="of `speech`")
    ways.add_argument("--sse", action="store_true", help="events of `speech` instead of bare sound")
    ways.add_argument("--rate-hz", type=_count, default=24_000, help="of PCM, if not told")
    ways.add_argument("--channels", type=_count, default=1, help="of PCM, if not told")
    ways.add_argument("--extra", default="{}", help="more fields of a `speech` request, as JSON")
    loads = parser.add_subparsers(dest="load", required=True, metavar="LOAD")
    closed = loads.add_parser("closed-loop", parents=[common, ways], help="N clients, each in turn")
    closed.add_argument("--concurrency", type=_count, default=8)
    closed.add_argument("--requests", type=_count, default=64)
    poisson = loads.add_parser("poisson", parents=[common, ways], help="requests of strangers")
    poisson.add_argument("--per-s", type=float, default=1.0)
    poisson.add_argument("--requests", type=_count, default=64)
    burst = loads.add_parser("burst", parents=[common, ways], help="many requests at once")
    burst.add_argument("--size", type=_count, default=32)
    burst.add_argument("--every-s", type=float, default=2.0)
    burst.add_argument("--bursts", type=_count, default=3)
    agents = loads.add_parser("voice-agent", parents=[common], help="dialogues as agents have them")
    agents.add_argument("--sessions", type=_count, default=8)
    agents.add_argument("--turns", type=_count, default=5)
    agents.add_argument(
        "--max-ahead-ms", type=_count, help="report what is played, and be sent so much ahead of it"
    )
    return parser


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {value}")
    return value


if __name__ == "__main__":
    sys.exit(main())
