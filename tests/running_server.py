"""A server that really listens, on an ephemeral loopback port, beside the tests."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from engine.fake import FakeEngine, FakeScript
from realtime.server.app import create_app
from realtime.server.cli import Server
from realtime.server.config import ServerConfig
from realtime.server.engine_process import LocalEngine
from realtime.server.services import Services, build_services

START_TIMEOUT_S = 60


@dataclasses.dataclass
class RunningServer:
    """A server on an ephemeral loopback port; `engine` is its fake engine, if it has one."""

    base_url: str
    services: Services
    engine: FakeEngine | None
    server: Server

    def stop(self) -> None:
        """Ask it to stop, as a signal would; returns at once."""
        self.server.should_exit = True

    @property
    def ws_url(self) -> str:
        return self.base_url.replace("http", "ws", 1) + "/v1/speech"


@contextmanager
def serving(config: ServerConfig, script: FakeScript | None) -> Iterator[RunningServer]:
    """Run a server on a thread, with a fake engine beside it or the real one in its process."""
    engines: list[FakeEngine] = []

    def build(publish: Callable[[Any], None]) -> FakeEngine:
        engines.append(FakeEngine(publish, script))
        return engines[0]

    services = build_services(config, LocalEngine(build) if script is not None else None)
    ready = threading.Event()
    server = Server(create_app(services), services, on_ready=lambda port: ready.set())
    thread = threading.Thread(target=server.run, name="test-server")
    thread.start()
    try:
        assert ready.wait(START_TIMEOUT_S), "the server did not come up"
        url = f"http://127.0.0.1:{server.port}"
        yield RunningServer(url, services, engines[0] if engines else None, server)
    finally:
        if engines:
            engines[0].release()
        server.should_exit = True
        thread.join(START_TIMEOUT_S)
        assert not thread.is_alive(), "the server did not stop"
