"""Line charts as inline SVG: crisp at any size, coloured by the page's style sheet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from workbench.report.html import escape

WIDTH, HEIGHT = 480, 250
LEFT, RIGHT, TOP, BOTTOM = 52, 14, 10, 34
MAX_POINTS = 300
STEEP = 4.0
COLOURS = 8  # colours of the style sheet
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Series:
    """A line. `held_out` draws it dashed with a dot per value."""

    name: str
    points: Points
    held_out: bool = False


def line_chart(series: Sequence[Series], x_label: str, y_label: str, from_zero: bool = False) -> str:
    """An SVG chart with a legend, or "" if no series has a point.

    The y axis is logarithmic, with a note in its label, if the first steps would hide all others (`steep`).
    """
    series = [s for s in series if s.points]
    if not series:
        return ""
    xs = [x for s in series for x, _ in s.points]
    ys = [y for s in series for _, y in s.points]
    x_ticks = ticks(min(xs), max(xs), 6)
    log = not from_zero and steep(series)
    y_ticks = log_ticks(min(ys), max(ys)) if log else ticks(0.0 if from_zero else min(ys), max(ys), 5)
    y_label += ", logarithmic" if log else ""
    frame = _Frame(min(xs), max(xs), min(y_ticks[0], min(ys)), max(max(ys), y_ticks[-1]), log)
    lines = "".join(_line(s, i, frame) for i, s in enumerate(series))
    label = f"{y_label} over {x_label}: " + ", ".join(s.name for s in series)
    svg = (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}" data-frame="{frame.data}">'
        f'<g class="axes">{_axes(x_ticks, y_ticks, frame)}</g>{_x_label(x_label)}{lines}</svg>'
    )
    return f'<figure class="chart"><figcaption>{escape(y_label)}{_legend(series)}</figcaption>{svg}</figure>'


def steep(series: Sequence[Series]) -> bool:
    """Whether the values after the first tenth of the steps span less than a quarter of a linear axis, and the highest
    value is several times the lowest, which is positive."""
    points = [point for s in series for point in s.points]
    last = max(x for x, _ in points)
    ys, later = [y for _, y in points], [y for x, y in points if x > 0.1 * last]
    if min(ys) <= 0 or max(ys) < STEEP * min(ys) or not later:
        return False
    return max(later) - min(ys) < (max(ys) - min(ys)) / 4


def log_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten, from at or below `low` up to at or above `high`."""
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    every = [round(m * 10.0**e, 12) for e in exponents for m in (1, 2, 5)]
    below, above = [t for t in every if t <= low], [t for t in every if t >= high]
    return [t for t in every if below[-1] <= t <= above[0]]


def ticks(low: float, high: float, count: int) -> list[float]:
    """Round numbers from at or below `low` up to at most `high` + one step."""
    if high <= low:
        high = low + (abs(low) or 1.0)
    raw = (high - low) / count
    unit = 10 ** math.floor(math.log10(raw))
    step = next(unit * m for m in (1, 2, 2.5, 5, 10) if unit * m >= raw * 0.999)
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def thinned(points: Points, limit: int = MAX_POINTS) -> list[tuple[float, float]]:
    """At most `limit` points: means of runs of neighbours, so that a long curve stays small and true."""
    if len(points) <= limit:
        return list(points)
    edges = [len(points) * i // limit for i in range(limit + 1)]
    runs = [points[a:b] for a, b in pairwise(edges)]
    return [(sum(x for x, _ in run) / len(run), sum(y for _, y in run) / len(run)) for run in runs]


@dataclass(frozen=True)
class _Frame:
    x_low: float
    x_high: float
    y_low: float
    y_high: float
    log: bool = False

    @property
    def data(self) -> str:
        """The corners of the plot, the ends of its axes, and whether y is logarithmic, for the script of the page."""
        ends = (self.x_low, self.x_high, self.y_low, self.y_high)
        corners = (LEFT, WIDTH - RIGHT, TOP, HEIGHT - BOTTOM)
        return " ".join([*map(str, corners), *(f"{end:g}" for end in ends), str(int(self.log))])

    def x(self, value: float) -> float:
        return LEFT + (value - self.x_low) / ((self.x_high - self.x_low) or 1.0) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        low, high, at = (
            map(math.log, (self.y_low, self.y_high, value)) if self.log else (self.y_low, self.y_high, value)
        )
        share = (at - low) / ((high - low) or 1.0)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def _axes(x_ticks: list[float], y_ticks: list[float], frame: _Frame) -> str:
    parts = []
    largest = max(abs(value) for value in y_ticks)
    for value in y_ticks:
        y = frame.y(value)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(
            f'<text class="tick" x="{LEFT - 8}" y="{y + 3.5:.1f}" text-anchor="end">{_tick(value, largest)}</text>'
        )
    for value in x_ticks:
        if frame.x_low <= value <= frame.x_high:
            x, y = frame.x(value), HEIGHT - BOTTOM + 16
            parts.append(
                f'<text class="tick" x="{x:.1f}" y="{y}" text-anchor="middle">{_tick(value, frame.x_high)}</text>'
            )
    return "".join(parts)


def _x_label(label: str) -> str:
    middle = (LEFT + WIDTH - RIGHT) / 2
    return f'<text class="tick" x="{middle}" y="{HEIGHT - 3}" text-anchor="middle">{escape(label)}</text>'


def _line(series: Series, index: int, frame: _Frame) -> str:
    points = thinned(series.points)
    placed = [(frame.x(x), frame.y(y)) for x, y in points]
    path = "M" + " L".join(f"{x:.1f},{y:.1f}" for x, y in placed)
    style = f"line c{index % COLOURS}" + (" held-out" if series.held_out else "")
    drawn = f'<path class="{style}" d="{path}"/>'
    dots = placed if series.held_out or len(placed) == 1 else []
    return drawn + "".join(
        f'<circle class="dot c{index % COLOURS}" cx="{x:.1f}" cy="{y:.1f}" r="2.6"/>' for x, y in dots
    )


def _legend(series: Sequence[Series]) -> str:
    if len(series) == 1:
        return ""
    chips = (
        f'<span class="chip c{i % COLOURS}{" held-out" if s.held_out else ""}">{escape(s.name)}</span>'
        for i, s in enumerate(series)
    )
    return f'<span class="legend">{"".join(chips)}</span>'


def _tick(value: float, largest: float) -> str:
    """A tick's number; all ticks of an axis have the unit of the largest."""
    for unit, letter in ((1e6, "M"), (1e3, "k")):
        if largest >= 10 * unit:
            return f"{value / unit:g}{letter}" if value else "0"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"
