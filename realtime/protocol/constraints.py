"""Bounds that annotate message fields; `protocol.schema` checks them on arrival."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class Range:
    """A number within `[low, high]`, NaN excluded."""

    low: float
    high: float

    def complaint(self, value: float) -> str | None:
        """Say what is wrong with `value`, if anything is."""
        if self.low <= value <= self.high:
            return None
        return f"must be between {self.low:g} and {self.high:g}, not {value!r}"


@dataclasses.dataclass(frozen=True, slots=True)
class Length:
    """A string of `low` to `high` characters (Unicode code points)."""

    low: int
    high: int

    def complaint(self, value: str) -> str | None:
        """Say what is wrong with `value`, if anything is."""
        if self.low <= len(value) <= self.high:
            return None
        return f"must have {self.low} to {self.high} characters, not {len(value)}"
