"""A server in a process of its own, so that its memory can be told from the test's."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def server_process(*flags: str) -> Iterator[tuple[str, int]]:
    """Run `moss-realtime serve` with these flags; gives its URL and process id."""
    command = [sys.executable, "-m", "realtime.server.cli", "serve", "--port", "0", *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        try:
            urls = (re.search(r"http://[\d.:]+", line) for line in server.stdout)
            yield next(url.group() for url in urls if url), server.pid
        finally:
            server.terminate()


def resident_kib(pid: int) -> int:
    """Memory of one process that is in RAM."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+)", status)
    assert found
    return int(found.group(1))


def children(pid: int) -> list[int]:
    """The processes a process has started: here the engine."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]
