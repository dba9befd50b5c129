"""The directory that `moss-realtime batch` fills: what is done in it stays done, whatever happens.

A sound is written aside and renamed once all of it is on the disk; after that a line in
`done.jsonl` says which request it answers. What is not in there is made again.
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from types import TracebackType
from typing import Any

from realtime.server.batch_input import Line
from realtime.server.config import ConfigError

JOURNAL = "done.jsonl"
_PARTIAL = ".partial-"


class BatchOutput:
    """`with BatchOutput(directory) as output:` holds the directory for this process alone."""

    def __init__(self, directory: Path) -> None:
        """Make the directory if need be. Raises `OSError`."""
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._done: dict[str, tuple[str, int]] = {}  # by file: digest of the request, bytes

    def __enter__(self) -> BatchOutput:
        """Raises `ConfigError` where another process fills the directory."""
        self._journal = (self._directory / JOURNAL).open("a+b")
        try:
            fcntl.flock(self._journal, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._journal.close()
            message = f"--out {str(self._directory)!r} is being filled by another process"
            raise ConfigError(message) from None
        for left in self._directory.glob(f"{_PARTIAL}*"):
            left.unlink()
        self._journal.seek(0)
        text = self._journal.read()
        for line in text.splitlines():
            self._note(line)
        if text and not text.endswith(b"\n"):  # a kill came while it was written
            self._append(b"\n")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._journal.close()

    def has(self, line: Line) -> bool:
        """Whether the sound of this very request is there."""
        digest, size = self._done.get(line.file, ("", -1))
        path = self._directory / line.file
        return digest == line.digest and path.is_file() and path.stat().st_size == size

    def add(self, line: Line, sound: bytes, facts: dict[str, Any]) -> None:
        """Keep the sound of a request; `facts` go into the journal beside it. Raises `OSError`."""
        partial = self._directory / f"{_PARTIAL}{line.file}"
        with partial.open("wb") as file:
            file.write(sound)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, self._directory / line.file)
        entry = {"line": line.number, "file": line.file, "request": line.digest}
        written = json.dumps(entry | {"bytes": len(sound)} | facts).encode()
        self._append(written + b"\n")
        self._note(written)

    def _append(self, data: bytes) -> None:
        self._journal.write(data)
        self._journal.flush()
        os.fsync(self._journal.fileno())

    def _note(self, written: bytes) -> None:
        try:
            entry = json.loads(written)
            self._done[entry["file"]] = (entry["request"], entry["bytes"])
        except (ValueError, TypeError, KeyError):
            return  # torn by a kill: that request is made again
