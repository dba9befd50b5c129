"""Where the engine runs: in a child process, or on a thread of this one.

Both have one interface: `start(publish)`, `submit(command)`, `stop(drain_s)`. `publish` is called
from a thread of theirs, for one event after the other.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from engine.api import Command, Event, Failed, Ready, Stats, Stop
from engine.host import AnyEngine, Inbox, read_frame, write_frame
from realtime.server.progress import Progress

logger = logging.getLogger(__name__)

Publish = Callable[[Event], None]
STOP_GRACE_S = 10.0
WATCH_S = 0.25
FIRST_RESTART_DELAY_S = 0.5
MAX_RESTART_DELAY_S = 30.0


class EngineLink(Protocol):
    """What the bridge needs of an engine, wherever it runs."""

    restarts: bool
    """Whether another engine follows one that died after it was ready."""

    def start(self, publish: Publish) -> None:
        """Start it; `publish` gets its events. A `Failed("process")` says that it died."""

    def submit(self, command: Command) -> None:
        """Queue a command; thread-safe, never blocks."""

    def stop(self, drain_s: float) -> None:
        """Finish rows for at most `drain_s`, stop, and return when it is gone."""


class LocalEngine:
    """An engine object on a thread of this process."""

    restarts = False

    def __init__(self, build: Callable[[Publish], AnyEngine]) -> None:
        self._build = build
        self._inbox = Inbox()
        self._thread: threading.Thread | None = None

    def start(self, publish: Publish) -> None:
        """Build and run it on its thread."""
        self._thread = threading.Thread(target=self._run, args=(publish,), name="engine")
        self._thread.start()

    def submit(self, command: Command) -> None:
        """Queue a command."""
        self._inbox.submit(command)

    def stop(self, drain_s: float) -> None:
        """Stop it and wait for its thread."""
        self.submit(Stop(drain_s))
        if self._thread:
            self._thread.join()

    def _run(self, publish: Publish) -> None:
        try:
            engine = self._build(publish)
            self._inbox.attach(engine)
            engine.run()
        except Exception as error:
            logger.exception("engine=local status=died")
            publish(Failed("process", "local", f"{type(error).__name__}: {error}"))


@dataclasses.dataclass(slots=True)
class _Child:
    popen: subprocess.Popen[bytes]
    sock: socket.socket
    progress: Progress | None = None  # once it is ready
    last_words: str = ""
    gone: threading.Event = dataclasses.field(default_factory=threading.Event)

    @property
    def ready(self) -> bool:
        """Whether it has ever served."""
        return self.progress is not None

    def note(self, event: Event) -> None:
        """Take what an event says of the child itself."""
        if isinstance(event, Ready):
            self.progress = Progress(time.monotonic)
        elif isinstance(event, Stats) and self.progress:
            self.progress.note(event)

    def kill_if_stuck(self, stuck_after_s: float) -> None:
        """Watch it until it is gone."""
        while not self.gone.wait(min(WATCH_S, stuck_after_s / 4)):
            if self.progress and self.progress.age_s() > stuck_after_s:
                self.last_words = f"it made no progress for {stuck_after_s:g} s"
                self.popen.kill()
                return


class EngineProcess:
    """`engine.host` as a child process, started anew whenever it dies or gets stuck.

    Stuck is a child that served and then made no progress for `stuck_after_s`. A child that dies
    before the first one was ever ready (a bad checkpoint, say) stays dead.
    """

    restarts = True

    def __init__(self, config: dict[str, Any], stuck_after_s: float = 10.0) -> None:
        self._config = json.dumps(config)
        self._stuck_after_s = stuck_after_s
        self._outbox: queue.SimpleQueue[Command | None] = queue.SimpleQueue()
        self._child: _Child | None = None
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the child that runs now."""
        return self._child.popen.pid if self._child else None

    def start(self, publish: Publish) -> None:
        """Start the child and the thread that reads it."""
        self._thread = threading.Thread(target=self._supervise, args=(publish,), name="engine")
        self._thread.start()

    def submit(self, command: Command) -> None:
        """Queue a command for the child that runs now, else for the next one."""
        self._outbox.put(command)

    def stop(self, drain_s: float) -> None:
        """Stop the child, by force when it does not listen."""
        self._stopping.set()
        child = self._child
        if child and child.ready:
            self.submit(Stop(drain_s))
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.popen.wait(drain_s + STOP_GRACE_S)
        if child:
            child.popen.kill()
        if self._thread:
            self._thread.join()

    def _supervise(self, publish: Publish) -> None:
        delay_s, ever_ready = FIRST_RESTART_DELAY_S, False
        while not self._stopping.is_set():
            child = self._child = self._spawn()
            if self._stopping.is_set():  # `stop` may have looked for the child just before
                child.popen.kill()
            self._read_until_death(child, publish)
            ever_ready = ever_ready or child.ready
            if self._stopping.is_set():
                return
            delay_s = FIRST_RESTART_DELAY_S if child.ready else delay_s * 2
            reason = child.last_words or _ending(child.popen.returncode)
            logger.error("engine_pid=%d status=died reason=%r", child.popen.pid, reason)
            publish(Failed("process", str(child.popen.pid), reason))
            if not ever_ready:
                return
            self._stopping.wait(min(delay_s, MAX_RESTART_DELAY_S))

    def _spawn(self) -> _Child:
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", "engine.host", str(theirs.fileno()), self._config]
            popen = subprocess.Popen(command, pass_fds=[theirs.fileno()])
        logger.info("engine_pid=%d status=started", popen.pid)
        return _Child(popen, ours)

    def _read_until_death(self, child: _Child, publish: Publish) -> None:
        outbox = self._outbox
        writer = threading.Thread(target=_write, args=(child.sock, outbox), name="engine-writer")
        watch = threading.Thread(
            target=child.kill_if_stuck, args=(self._stuck_after_s,), name="engine-watch"
        )
        writer.start()
        watch.start()
        while (event := read_frame(child.sock)) is not None:
            if isinstance(event, Failed) and event.what == "process":
                child.last_words = event.error
                continue
            child.note(event)
            publish(event)
        child.gone.set()
        # Whatever is submitted from here on, before anyone hears of the death, is for the next one.
        self._outbox = queue.SimpleQueue()
        outbox.put(None)
        writer.join()
        watch.join()
        child.sock.close()
        child.popen.wait()


def _ending(status: int) -> str:
    """Say how a child ended that left no word."""
    if status >= 0:
        return f"it ended with status {status}"
    name = signal.Signals(-status).name
    hint = ", as happens when the machine runs out of memory" if name == "SIGKILL" else ""
    return f"it was ended by {name}{hint}"


def _write(sock: socket.socket, outbox: queue.SimpleQueue[Command | None]) -> None:
    with contextlib.suppress(OSError):  # the reader sees the death too, and deals with it
        while (command := outbox.get()) is not None:
            write_frame(sock, command)
