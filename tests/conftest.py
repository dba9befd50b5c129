"""Fixtures for every test: one event loop backend, and a server that really listens."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from engine.fake import FakeEngine, FakeScript

if TYPE_CHECKING:  # only tests that run a server pay for importing it
    from realtime.server.config import ServerConfig
    from realtime.server.services import Services

START_TIMEOUT_S = 60
DEFAULT_SCRIPT = FakeScript()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def eventually() -> Callable[[Callable[[], Any]], Awaitable[None]]:
    """`await eventually(lambda: condition)`: wait until it holds, fail after 20 s."""

    async def eventually(condition: Callable[[], Any]) -> None:
        for _ in range(4000):
            if condition():
                return
            await asyncio.sleep(0.005)
        pytest.fail("the condition did not come true within 20 s")

    return eventually


@dataclasses.dataclass
class RunningServer:
    """A server on an ephemeral loopback port; `engine` is its fake engine, if it has one."""

    base_url: str
    services: Services
    engine: FakeEngine | None

    @property
    def ws_url(self) -> str:
        return self.base_url.replace("http", "ws", 1) + "/v1/speech"


@contextmanager
def serving(config: ServerConfig, script: FakeScript | None) -> Iterator[RunningServer]:
    """Run a server on a thread, with a fake engine beside it or the real one in its process."""
    from realtime.server.app import create_app
    from realtime.server.cli import Server
    from realtime.server.engine_process import LocalEngine
    from realtime.server.services import build_services

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
        yield RunningServer(url, services, engines[0] if engines else None)
    finally:
        if engines:
            engines[0].release()
        server.should_exit = True
        thread.join(START_TIMEOUT_S)
        assert not thread.is_alive(), "the server did not stop"


@pytest.fixture
def run_server(tmp_path: Path) -> Iterator[Callable[..., RunningServer]]:
    """Start servers: `run_server(script=FakeScript(...), **ServerConfig fields)`.

    `script=None` runs the real engine with the shipped voice in its own process.
    """
    with ExitStack() as stack:

        def run(script: FakeScript | None = DEFAULT_SCRIPT, **settings: Any) -> RunningServer:
            from realtime.server.config import ServerConfig

            settings = {"port": 0, "data_dir": str(tmp_path), "log_level": "warning"} | settings
            return stack.enter_context(serving(ServerConfig(**settings), script))

        yield run


@pytest.fixture
def running_server(run_server: Callable[..., RunningServer]) -> RunningServer:
    """A server with a fake engine that speaks the chirp of `engine.index_sound`."""
    return run_server()
