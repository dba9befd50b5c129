"""Repeat, time, and report a median with its spread."""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch


def times_s(run: Callable[[], object], repeats: int, warm_up: int = 3) -> list[float]:
    """Seconds of each repeat, after `warm_up` runs that do not count."""
    for _ in range(warm_up):
        run()
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - started)
    return seconds


def spread(values: list[float], digits: int = 3) -> dict[str, float]:
    """Median, tenth and ninetieth percentile."""
    ordered = sorted(values)
    last = len(ordered) - 1
    return {
        "median": round(statistics.median(ordered), digits),
        "p10": round(ordered[last // 10], digits),
        "p90": round(ordered[last - last // 10], digits),
        "n": len(ordered),
    }


def percentiles(values: list[float], digits: int = 2) -> dict[str, float]:
    """Median, 90th and 99th percentile, and the worst."""
    ordered = sorted(values)
    if not ordered:
        return {"n": 0}
    ranks = {f"p{rank}": ordered[(len(ordered) - 1) * rank // 100] for rank in (50, 90, 99)}
    figures = ranks | {"max": ordered[-1]}
    return {name: round(value, digits) for name, value in figures.items()} | {"n": len(ordered)}


def ratio(a: list[float], b: list[float]) -> dict[str, float]:
    """Ratio a / b of interleaved runs, pair by pair."""
    return spread([x / y for x, y in zip(a, b, strict=True)])


def machine() -> dict[str, object]:
    """What the figures were taken on."""
    cpu = Path("/proc/cpuinfo").read_text().split("model name", 1)[-1].split(":", 1)[-1]
    return {
        "cpu": cpu.splitlines()[0].strip(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def report(name: str, figures: dict[str, object]) -> None:
    """Print one JSON document."""
    print(json.dumps({"benchmark": name, "machine": machine(), **figures}, indent=1))
