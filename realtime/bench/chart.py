"""Line charts as SVG text: axes, a grid, lines, a legend."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from html import escape

Point = tuple[float, float]

WIDTH, HEIGHT = 720, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 12, 12, 44
COLOURS = ("#2563eb", "#d97706", "#059669", "#be185d", "#7c3aed", "#57534e")


@dataclasses.dataclass(frozen=True, slots=True)
class Series:
    """A line. Without a name it is one of many: thin, and not in the legend."""

    points: Sequence[Point]
    name: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Range:
    """The values an axis shows, and where its marks are."""

    low: float
    high: float
    marks: tuple[float, ...]

    def share(self, value: float) -> float:
        """Where a value lies, 0 to 1."""
        return (value - self.low) / (self.high - self.low)


def nice_range(values: Sequence[float], marks: int = 6) -> Range:
    """A range around values whose marks are 1, 2 or 5 times a power of ten apart."""
    low, high = min([0.0, *values]), max([0.0, *values])
    high = high if high > low else low + 1.0
    raw = (high - low) / marks
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(step for step in (power, 2 * power, 5 * power, 10 * power) if step >= raw)
    first, last = math.floor(low / step), math.ceil(high / step)
    ticks = tuple(round(step * number, 10) for number in range(first, last + 1))
    return Range(ticks[0], ticks[-1], ticks)


def steps(points: Sequence[Point]) -> list[Point]:
    """Points of a value that stays as it is until the next."""
    found: list[Point] = []
    for at, value in points:
        if found:
            found.append((at, found[-1][1]))
        found.append((at, value))
    return found


def cumulative(values: Sequence[float]) -> list[Point]:
    """The percent of values that are at most so great."""
    ordered = sorted(values)
    shares = ((value, 100 * rank / len(ordered)) for rank, value in enumerate(ordered, start=1))
    return steps([(ordered[0], 0.0), *shares]) if ordered else []


def line_chart(series: Sequence[Series], x_label: str, y_label: str) -> str:
    """Draw; without any points it says that there are none."""
    shown = [line for line in series if line.points]
    if not shown:
        return '<p class="none">No data.</p>'
    x_range = nice_range([x for line in shown for x, _ in line.points])
    y_range = nice_range([y for line in shown for _, y in line.points])
    named = [line.name for line in shown if line.name]
    parts = [*_axes(x_range, y_range, x_label, y_label)]
    for line in shown:
        number = named.index(line.name) if line.name else 0
        parts.append(_line(line, x_range, y_range, COLOURS[number % len(COLOURS)]))
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(y_label)}"'
    return f"<svg {size}>{''.join(parts)}</svg>{_legend(named)}"


def _x(x_range: Range, value: float) -> float:
    return _LEFT + x_range.share(value) * (WIDTH - _LEFT - _RIGHT)


def _y(y_range: Range, value: float) -> float:
    return HEIGHT - _BOTTOM - y_range.share(value) * (HEIGHT - _TOP - _BOTTOM)


def _axes(x_range: Range, y_range: Range, x_label: str, y_label: str) -> list[str]:
    bottom, right = HEIGHT - _BOTTOM, WIDTH - _RIGHT
    parts = []
    for mark in x_range.marks:
        x = _x(x_range, mark)
        parts.append(f'<path class="grid" d="M{x:.1f} {_TOP}V{bottom}"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{mark:g}</text>')
    for mark in y_range.marks:
        y = _y(y_range, mark)
        kind = "zero" if mark == 0 else "grid"
        parts.append(f'<path class="{kind}" d="M{_LEFT} {y:.1f}H{right}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{mark:g}</text>')
    middle = (_LEFT + right) / 2
    parts.append(
        f'<text x="{middle}" y="{HEIGHT - 8}" text-anchor="middle">{escape(x_label)}</text>'
    )
    turned = f'transform="translate(14 {(_TOP + bottom) / 2}) rotate(-90)" text-anchor="middle"'
    parts.append(f"<text {turned}>{escape(y_label)}</text>")
    return parts


def _line(line: Series, x_range: Range, y_range: Range, colour: str) -> str:
    points = " ".join(f"{_x(x_range, x):.1f},{_y(y_range, y):.1f}" for x, y in line.points)
    look = 'stroke-width="2"' if line.name else 'stroke-width="1" stroke-opacity="0.35"'
    return f'<polyline fill="none" stroke="{colour}" {look} points="{points}"/>'


def _legend(names: Sequence[str]) -> str:
    entries = "".join(
        f'<li><i style="background:{COLOURS[number % len(COLOURS)]}"></i>{escape(name)}</li>'
        for number, name in enumerate(names)
    )
    return f'<ul class="legend">{entries}</ul>' if entries else ""
