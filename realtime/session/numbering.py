"""Which client message is awaited, and how fast text may come."""

from __future__ import annotations

import math

from realtime.protocol.errors import ProtocolError
from realtime.protocol.limits import Limits
from realtime.protocol.messages import ClientMessage, ResponseText
from realtime.protocol.pace import Pace


class Numbering:
    """Client messages are applied in the order of their number: 1, then +1."""

    def __init__(self, limits: Limits) -> None:
        self.awaited_m = 1
        self._limits = limits
        self._pace = Pace(limits.text_deltas_per_s, limits.text_delta_burst)

    def take(self, message: ClientMessage, now_ms: int) -> bool:
        """Whether to apply a message: it is the one awaited, and not one applied before.

        Raises `ProtocolError` for a gap, and for text that comes too fast: its number stays
        awaited, so that no word is lost.
        """
        if not self._is_awaited(message.m):
            return False
        if isinstance(message, ResponseText):
            self._check_pace(message.m, now_ms)
        self.awaited_m += 1
        return True

    def take_unreadable(self, m: int | None) -> bool:
        """Whether to answer a message that could not be read; raises `ProtocolError` for a gap."""
        if m is None:
            return True
        if not self._is_awaited(m):
            return False
        self.awaited_m += 1
        return True

    def _is_awaited(self, m: int) -> bool:
        if m > self.awaited_m:
            raise ProtocolError(
                "sequence_gap",
                f"message {self.awaited_m} is awaited, this is {m}",
                scope="connection",
                expected=self.awaited_m,
                param="m",
            )
        return m == self.awaited_m

    def _check_pace(self, m: int, now_ms: int) -> None:
        wait_ms = self._pace.take(now_ms)
        if wait_ms:
            raise ProtocolError(
                "rate_limited",
                f"more than {self._limits.text_deltas_per_s} deltas a second after a burst of "
                f"{self._limits.text_delta_burst}; send on from message {m}",
                retry_after_ms=math.ceil(wait_ms),
                expected=m,
            )
