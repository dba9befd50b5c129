"""The command line of `moss-realtime bench`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from realtime.bench.metrics import OBJECTIVES
from realtime.bench.references import Tier

KEY_VARIABLE = "MOSS_API_KEY"
DEFAULT_SEED = 20261
_ONLY_OF_SPEECH: dict[str, Any] = {
    **{"format": "pcm", "sse": False, "rate_hz": 24_000, "channels": 1},
    **{"extra": {}, "references": "none", "sized": False},
}


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Read a command line; exits with 2 where it makes no sense."""
    parser = _parser()
    asked = parser.parse_args(words)
    if getattr(asked, "endpoint", "speech") == "ws":
        for name, default in _ONLY_OF_SPEECH.items():
            if getattr(asked, name) != default:
                parser.error(f"--{name.replace('_', '-')} needs --endpoint speech")
    return asked


def _parser() -> argparse.ArgumentParser:
    command = argparse.ArgumentParser(
        prog="moss-realtime bench",
        description=f"Put a load on a server; {KEY_VARIABLE} holds the key it wants.",
    )
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--server", required=True, metavar="URL")
    common.add_argument("--out", type=Path, required=True, help="directory of the report")
    common.add_argument("--voice", help="name of a voice; else the server's default")
    common.add_argument("--seed", type=int, default=DEFAULT_SEED, help="freezes the workload")
    common.add_argument("--rounds", type=_count, default=_ONLY_OF_SPEECH["channels"])
    common.add_argument("--warm-up", type=int, default=4, help="requests before, not counted")
    common.add_argument("--note", action="append", default=[], metavar="NAME=VALUE")
    common.add_argument(
        "--slo",
        type=_objective,
        action="append",
        default=[],
        metavar="NAME=MOST",
        help=f"goodput counts responses that meet it: {', '.join(OBJECTIVES)}",
    )
    common.add_argument("--trips", action="store_true", help="every response in the JSON")
    ways = argparse.ArgumentParser(add_help=False)
    ways.add_argument("--endpoint", choices=("ws", "speech"), default="ws")
    ways.add_argument(
        "--format", choices=("pcm", "wav"), default=_ONLY_OF_SPEECH["format"], help="of `speech`"
    )
    ways.add_argument("--sse", action="store_true", help="events of `speech` instead of bare sound")
    ways.add_argument(
        "--rate-hz", type=_count, default=_ONLY_OF_SPEECH["rate_hz"], help="of PCM, if not told"
    )
    ways.add_argument("--channels", type=_count, default=1, help="of PCM, if not told")
    ways.add_argument(
        "--extra",
        type=_fields,
        default=_ONLY_OF_SPEECH["extra"],
        metavar="JSON",
        help="more fields of `speech` requests",
    )
    ways.add_argument(
        "--references",
        choices=get_args(Tier),
        default=_ONLY_OF_SPEECH["references"],
        help="speakers of `speech` requests",
    )
    ways.add_argument("--sized", action="store_true", help="cap `speech` answers about 52 frames")
    loads = command.add_subparsers(dest="load", required=True, metavar="LOAD")
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
    return command


def _fields(text: str) -> dict[str, Any]:
    try:
        fields = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"cannot be read as JSON: {error}") from None
    if not isinstance(fields, dict):
        raise argparse.ArgumentTypeError(f"must be a JSON object, not {text}")
    return fields


def _objective(text: str) -> tuple[str, float]:
    name, _, most = text.partition("=")
    if name not in OBJECTIVES:
        known = ", ".join(OBJECTIVES)
        raise argparse.ArgumentTypeError(f"{name!r} is not one of {known}")
    try:
        return name, float(most)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{name} needs a number, not {most!r}") from None


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {value}")
    return value
