"""Bounds that annotate message fields; `protocol.schema` checks them on arrival."""

from __future__ import annotations

import dataclasses

from realtime.protocol.errors import ErrorCode


@dataclasses.dataclass(frozen=True, slots=True)
class Range:
    """A number within `[low, high]`, NaN excluded."""

    low: float
    high: float

    def complaint(self, value: float) -> tuple[ErrorCode, str] | None:
        """Say what is wrong with `value`, if anything is."""
        if self.low <= value <= self.high:
            return None
        return "invalid_field", f"must be between {self.low:g} and {self.high:g}, not {value!r}"


@dataclasses.dataclass(frozen=True, slots=True)
class Length:
    """A string of `low` to `high` characters (Unicode code points).

    `code` is the error of one that is longer.
    """

    low: int
    high: int
    code: ErrorCode = "invalid_field"

    def complaint(self, value: str) -> tuple[ErrorCode, str] | None:
        """Say what is wrong with `value`, if anything is."""
        if self.low <= len(value) <= self.high:
            return None
        code = self.code if len(value) > self.high else "invalid_field"
        return code, f"must have {self.low} to {self.high} characters, not {len(value)}"
