"""Fixtures for every test: one event loop backend, and a server that really listens."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from engine.fake import FakeScript

if TYPE_CHECKING:
    from tests.running_server import RunningServer

DEFAULT_SCRIPT = FakeScript()

settings.register_profile("untimed", deadline=None)  # a busy machine decides no test
settings.load_profile("untimed")


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


@pytest.fixture
def run_server(tmp_path: Path) -> Iterator[Callable[..., RunningServer]]:
    """Start servers: `run_server(script=FakeScript(...), **ServerConfig fields)`.

    `script=None` runs the real engine with the shipped voice in its own process.
    """
    with ExitStack() as stack:

        def run(script: FakeScript | None = DEFAULT_SCRIPT, **settings: Any) -> RunningServer:
            # Only tests that run a server pay for importing it.
            from realtime.server.config import ServerConfig
            from tests.running_server import serving

            defaults = {"port": 0, "data_dir": str(tmp_path), "log_level": "warning"}
            defaults |= {"fake": script is not None, "drain_s": 0.2}
            return stack.enter_context(serving(ServerConfig(**defaults | settings), script))

        yield run


@pytest.fixture
def running_server(run_server: Callable[..., RunningServer]) -> RunningServer:
    """A server with a fake engine that speaks the chirp of `engine.index_sound`."""
    return run_server()
