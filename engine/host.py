"""The engine's own process: `python -m engine.host FD CONFIG`, a child of the server.

FD is one end of a socketpair. Both ways it carries frames of a u32 little-endian length and
`engine.api.pack(message)`: commands in, events out. CONFIG is JSON: `{"engines": [{...EngineConfig
fields}, ...]}`, one a model, or `{"fake": {...FakeScript fields}}`. The process ends when the
engine was stopped, when it raised, or when the socket closes.
"""

from __future__ import annotations

import importlib
import json
import os
import queue
import signal
import socket
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any, Protocol

from engine.api import Command, Event, Failed, Stop, pack, unpack

EXIT_GRACE_S = 5.0
_LENGTH = struct.Struct("<I")


class AnyEngine(Protocol):
    """What the host runs: `engine.loop.EngineLoop` or `engine.fake.FakeEngine`."""

    def submit(self, command: Command) -> None:
        """Queue a command; thread-safe, never blocks."""

    def run(self) -> None:
        """Block until `Stop` was handled."""


class Inbox:
    """Takes commands from the start and passes them on once the engine was built."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._early: list[Command] = []
        self._engine: AnyEngine | None = None

    def submit(self, command: Command) -> None:
        """Queue a command; thread-safe, never blocks."""
        with self._lock:
            if self._engine:
                self._engine.submit(command)
            else:
                self._early.append(command)

    def attach(self, engine: AnyEngine) -> None:
        """Hand over what came so far, and from now on everything."""
        with self._lock:
            for command in self._early:
                engine.submit(command)
            self._engine = engine


def write_frame(sock: socket.socket, message: Command | Event) -> None:
    """Send one message; raises `OSError` when the other end is gone."""
    data = pack(message)
    sock.sendall(_LENGTH.pack(len(data)) + data)


def read_frame(sock: socket.socket) -> Any:
    """Return the next message, or None at the end of the stream."""
    header = _read_exactly(sock, _LENGTH.size)
    body = _read_exactly(sock, _LENGTH.unpack(header)[0]) if header else None
    return unpack(body) if body is not None else None


def _read_exactly(sock: socket.socket, size: int) -> bytes | None:
    data = bytearray(size)
    view, at = memoryview(data), 0
    while at < size:
        try:
            count = sock.recv_into(view[at:])
        except ConnectionError:
            return None
        if not count:
            return None
        at += count
    return bytes(data)


def build_engine(config: dict[str, Any], publish: Callable[[Event], None]) -> AnyEngine:
    """Make the engine that `CONFIG` describes; only the real one imports torch."""
    if "fake" in config:
        from engine.fake import FakeEngine, script_from_json

        return FakeEngine(publish, script_from_json(config["fake"]))
    from engine.config import EngineConfig

    settings = [EngineConfig(**model) for model in config["engines"]]
    # By name, so that whoever checks or imports this module does not load torch.
    engine: AnyEngine = importlib.import_module("engine.loop").EngineLoop(settings, publish)
    return engine


def serve(sock: socket.socket, config: dict[str, Any]) -> int:
    """Run the engine on this thread until it stops; return the exit status."""
    outbox: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
    inbox = Inbox()
    writer = threading.Thread(target=_write_events, args=(sock, outbox), name="host-writer")
    reader = threading.Thread(target=_read_commands, args=(sock, inbox), name="host-reader")
    writer.start()
    reader.start()
    try:
        engine = build_engine(config, outbox.put)
        inbox.attach(engine)
        engine.run()
        return 0
    except Exception as error:
        traceback.print_exc()
        outbox.put(Failed("process", str(os.getpid()), f"{type(error).__name__}: {error}"))
        return 1
    finally:
        outbox.put(None)
        writer.join(EXIT_GRACE_S)


def _write_events(sock: socket.socket, outbox: queue.SimpleQueue[Event | None]) -> None:
    try:
        while (event := outbox.get()) is not None:
            write_frame(sock, event)
    except OSError:
        pass  # the server is gone; the reader ends the process


def _read_commands(sock: socket.socket, inbox: Inbox) -> None:
    while (command := read_frame(sock)) is not None:
        inbox.submit(command)
    inbox.submit(Stop(0.0))
    # An engine that is loading, or stuck in a step, must not outlive its server.
    time.sleep(EXIT_GRACE_S)
    os._exit(1)


def main() -> None:
    """Entry point of the child."""
    # Ctrl-C reaches the whole process group; the server decides how the engine stops.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Must be set before torch loads: spinning OpenMP threads starve the other process.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    sock = socket.socket(fileno=int(sys.argv[1]))
    status = serve(sock, json.loads(sys.argv[2]))
    sys.stderr.flush()
    # Threads that are still blocked on the socket must not hold the exit back.
    os._exit(status)


if __name__ == "__main__":
    main()
