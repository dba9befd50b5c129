"""When the credential of a connection ends, and the warning before that."""

from __future__ import annotations

import dataclasses

WARN_MS = 30_000


@dataclasses.dataclass(slots=True)
class Expiry:
    """`at_ms` is on the session's clock, `at_unix_s` the same moment for the client."""

    at_ms: int
    at_unix_s: int
    warned: bool = False

    def is_over(self, now_ms: int) -> bool:
        """Whether the connection has to close."""
        return now_ms >= self.at_ms

    def warns(self, now_ms: int) -> bool:
        """Whether the client is to be warned now; true once."""
        due = not self.warned and now_ms >= self.at_ms - WARN_MS
        self.warned = self.warned or due
        return due

    def next_ms(self, *, started: bool) -> int:
        """When something is due; before the session has `started` there is nobody to warn."""
        return self.at_ms - WARN_MS if started and not self.warned else self.at_ms
