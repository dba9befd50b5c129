"""Collects the effects of one call and numbers what is sent."""

from __future__ import annotations

import dataclasses

from engine.api import Command
from realtime.protocol.messages import ServerMessage
from realtime.session.effects import Effect, Send, ToEngine


class Emitter:
    """The session's way out; `epoch` is the session's."""

    def __init__(self) -> None:
        self.epoch = 0
        self._n = 0
        self._effects: list[Effect] = []

    def send(self, message: ServerMessage) -> None:
        """Send a control message under the next number."""
        self._n += 1
        self._effects.append(Send(dataclasses.replace(message, n=self._n)))

    def command(self, *commands: Command) -> None:
        """Pass commands to the engine."""
        self._effects.extend(ToEngine(command) for command in commands)

    def emit(self, effect: Effect) -> None:
        """Add any other effect."""
        self._effects.append(effect)

    def take(self) -> list[Effect]:
        """Return the effects since the last call."""
        effects, self._effects = self._effects, []
        return effects
