"""Memory of an idle session: a real server and its engine, before and after opening many.

`python -m tests.bench.sessions [COUNT]` prints JSON.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path

from realtime.sdk import Client
from tests.bench.measure import report


def resident_kib(pid: int) -> int:
    """Memory of one process that is in RAM."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status).group(1))


def children(pid: int) -> list[int]:
    """The processes a process has started: here the engine."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


async def measure(url: str, pid: int, count: int) -> dict[str, object]:
    """Open sessions with a voice and let them rest."""
    [engine] = children(pid)
    clients = [Client(url, voice="heart") for _ in range(count)]
    await clients[0].__aenter__()
    await asyncio.sleep(1)
    before = resident_kib(pid), resident_kib(engine)
    for client in clients[1:]:
        await client.__aenter__()
    await asyncio.sleep(2)
    after = resident_kib(pid), resident_kib(engine)
    for client in reversed(clients):
        await client.__aexit__(None, None, None)
    per_session = [round((b - a) / (count - 1), 1) for a, b in zip(before, after, strict=True)]
    return {
        "sessions": count,
        "server_kib_per_session": per_session[0],
        "engine_kib_per_session": per_session[1],
        "server_rss_mib": round(after[0] / 1024),
        "engine_rss_mib": round(after[1] / 1024),
    }


def main() -> None:
    """Start a server with the shipped voice, measure, stop it."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    command = [sys.executable, "-m", "realtime.server.cli", "serve", "--port", "0"]
    command += ["--max-sessions", str(count + 1), "--log-level", "warning"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        url = next(m.group() for line in server.stdout if (m := re.search(r"http://[\d.:]+", line)))
        try:
            report("sessions", asyncio.run(measure(url, server.pid, count)))
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
