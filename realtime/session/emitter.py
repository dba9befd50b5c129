"""Collects the effects of one call and numbers what is sent."""

from __future__ import annotations

import dataclasses

from engine.api import Command
from realtime.protocol.errors import ProtocolError
from realtime.protocol.messages import Error, ServerMessage
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

    def refuse(self, error: ProtocolError) -> None:
        """Send an error."""
        self.send(
            Error(
                reply_to=error.reply_to,
                scope=error.scope,
                code=error.code,
                message=error.message,
                param=error.param,
                retryable=error.retryable,
                response_id=error.response_id,
                retry_after_ms=error.retry_after_ms,
                expected=error.expected,
            )
        )

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
