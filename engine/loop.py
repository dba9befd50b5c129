"""The engine's thread: every loaded model takes its tick in turn."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import queue
from collections.abc import Callable, Sequence

from engine import api
from engine.config import EngineConfig
from engine.engine import HEARTBEAT_S, Engine
from engine.parts import Codecs


class EngineLoop:
    """One or more models behind one interface; `run` is the loop of its one thread.

    `submit` may be called from any thread and never blocks. `publish` is called from the loop's
    thread and must not block either. Raises `CheckpointError`.
    """

    def __init__(
        self, configs: Sequence[EngineConfig], publish: Callable[[api.Event], None]
    ) -> None:
        codecs = Codecs()
        self._publish = publish
        self._inbox: queue.SimpleQueue[api.Command] = queue.SimpleQueue()
        self._stats: dict[str, api.Stats] = {}
        self._engines = {
            config.model_name: Engine(
                config, functools.partial(self._pass_on, config.model_name), codecs
            )
            for config in configs
        }
        self._first = next(iter(self._engines.values()))

    def submit(self, command: api.Command) -> None:
        """Queue a command; commands are applied in order, between ticks."""
        self._inbox.put(command)

    def run(self) -> None:
        """Serve until `Stop`."""
        engines = list(self._engines.values())
        for engine in engines:
            engine.warm_up()
        self._publish(api.Ready(tuple(engine.parts.info for engine in engines)))
        wait_s = 0.0
        while not all(engine.is_stopped for engine in engines):
            self._hand_out(wait_s)
            busy = [engine.tick() for engine in engines]
            wait_s = 0.0 if any(busy) else HEARTBEAT_S
        for engine in engines:
            engine.release()

    def _hand_out(self, wait_s: float) -> None:
        """Give each engine its commands, waiting for the first one at most this long."""
        with contextlib.suppress(queue.Empty):
            command = self._inbox.get(timeout=wait_s) if wait_s else self._inbox.get_nowait()
            while True:
                for engine in self._meant_by(command):
                    engine.submit(command)
                command = self._inbox.get_nowait()

    def _meant_by(self, command: api.Command) -> Sequence[Engine]:
        match command:
            case api.Open() | api.Warm() | api.Encode():
                # The first one refuses what is for none.
                return [self._engines.get(command.model, self._first)]
            case _:
                # Of a row or stream only one knows; the others ignore it, as what is over.
                return list(self._engines.values())

    def _pass_on(self, name: str, event: api.Event) -> None:
        if isinstance(event, api.Stats):
            self._stats[name] = event
            event = _together(list(self._stats.values()))
        self._publish(event)


def _together(stats: Sequence[api.Stats]) -> api.Stats:
    """Counts add up; of times the longest shows."""
    values = zip(*(dataclasses.astuple(one) for one in stats), strict=True)
    return api.Stats(*(sum(v) if isinstance(v[0], int) else max(v) for v in values))
