"""A server of its own and a load on it: `moss-realtime bench` without a server to name.

`python -m tests.bench.load [--shipped-voice] LOAD --out DIR ...` takes the loads and flags of
`moss-realtime bench`, all but `--server`. The server, its engine and the load are three processes.
"""

from __future__ import annotations

import subprocess
import sys

from tests.bench.measure import machine
from tests.server_process import server_process


def main() -> int:
    """Start the server, run the load, stop the server."""
    words = sys.argv[1:]
    shipped = "--shipped-voice" in words
    flags = [] if shipped else ["--fake"]
    load, *rest = [word for word in words if word != "--shipped-voice"]
    engine = "shipped voice" if shipped else "fake"
    notes = {"engine": engine, "cpu": machine()["cpu"], "commit": _commit()}
    noted = [word for name, value in notes.items() for word in ("--note", f"{name}={value}")]
    with server_process(*flags, "--log-level", "warning") as (url, _):
        command = [sys.executable, "-m", "realtime.bench", load, "--server", url, *noted, *rest]
        return subprocess.run(command, check=False).returncode


def _commit() -> str:
    asked = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    return asked.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main())
