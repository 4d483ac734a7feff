"""The uncertainty of a number of a test set, and of a difference of two: bootstrap over items, and Wilson's interval.

The bootstrap (Efron and Tibshirani, 1993) draws as many units as there are, with replacement, and computes the number
of the draw. A unit is a key with all items that have it (the questions on one image, the mentions of a text), as
these are not independent. Intervals are percentiles. The test of a difference is paired: both sides get the same draw
(Koehn, EMNLP 2004). Its p value is the share of draws whose difference is as far from the observed one as that is from
0,

    p = (1 + #{|d* - d| >= |d|}) / (1 + draws)

so that equal runs get 1. With several seeds a side, a draw also takes as many of them as there are, with
replacement, and the number is the mean over those. Seeds of two sides that are equally many are paired, in their order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from workbench.metrics.tallies import Tally

Z = 1.959963984540054
"""The normal distribution's quantile of 97.5 %."""
CELLS = 4_000_000
"""The draws of units that are in memory at once."""
DRAWS = 1_000
"""For the interval of a single number."""


class Interval(NamedTuple):
    """A 95 % interval, and the method by which it was computed."""

    low: float
    high: float
    by: str


class Difference(NamedTuple):
    """Two sides, the second minus the first: their numbers, the difference with its interval, and the p value."""

    first: float
    second: float
    difference: float
    low: float
    high: float
    p: float


def draws(units: int, count: int, seed: int) -> Iterator[np.ndarray]:
    """The number of times that each unit is drawn, `count` times anew: [some draws, units] at a time."""
    rng = np.random.default_rng(seed)
    size = max(1, min(count, CELLS // max(1, units)))
    for begin in range(0, count, size):
        some = min(size, count - begin)
        places = rng.integers(0, units, (some, units)) + units * np.arange(some)[:, None]
        yield np.bincount(places.ravel(), minlength=some * units).reshape(some, units).astype(float)


def intervals(tallies: dict[str, Tally], units: np.ndarray, seed: int = 0, count: int = DRAWS) -> dict[str, Interval]:
    """95 % intervals of numbers of the same items: Wilson's of shares of single items, else the bootstrap's.

    Args:
        units: for each item the number of its unit [items]. A single unit has no interval.
    """
    total = int(units.max(initial=-1)) + 1
    alone = total == len(units)
    shares = {name: tally.shares for name, tally in tallies.items() if alone}
    found = {name: wilson(*of) for name, of in shares.items() if of is not None}
    others = {name: tally for name, tally in tallies.items() if name not in found}
    if total > 1 and others:
        drawn: dict[str, list[np.ndarray]] = {name: [] for name in others}
        for weights in draws(total, count, seed):
            for name, tally in others.items():
                drawn[name].append(tally.value_of_units(weights, units))
        for name, parts in drawn.items():
            found[name] = Interval(*_percentiles(np.concatenate(parts)), "bootstrap")
    return {name: found[name] for name in tallies if name in found}


def wilson(right: int, total: int, unit: float = 1.0) -> Interval:
    """The interval of a share of independent items (Wilson, JASA 1927), of which each right one counts as `unit`."""
    share, z2 = right / total, Z**2
    middle = (share + z2 / (2 * total)) / (1 + z2 / total)
    half = Z / (1 + z2 / total) * math.sqrt(share * (1 - share) / total + z2 / (4 * total**2))
    return Interval(unit * max(0.0, middle - half), unit * min(1.0, middle + half), "Wilson")


def compared_numbers(
    first: Sequence[Tally], second: Sequence[Tally], units: np.ndarray, count: int = 10_000, seed: int = 0
) -> Difference:
    """A number of two sides, each with a tally for each of its seeds, all of the same items in the same order.

    Args:
        units: for each item the number of its unit [items].
    """
    observed = [float(np.mean([tally.whole for tally in side])) for side in (first, second)]
    paired, rng = len(first) == len(second), np.random.default_rng([seed, 1])
    parts = []
    for weights in draws(int(units.max()) + 1, count, seed):
        taken = [
            rng.multinomial(len(side), np.full(len(side), 1 / len(side)), len(weights)) for side in (first, second)
        ]
        of_seeds = (taken[0], taken[0]) if paired else taken
        one, other = (
            sum(tally.value_of_units(weights, units) * drawn for tally, drawn in zip(side, times.T, strict=True))
            / len(side)
            for side, times in zip((first, second), of_seeds, strict=True)
        )
        parts.append(np.asarray(other - one))
    drawn, difference = np.concatenate(parts), observed[1] - observed[0]
    far = np.abs(drawn - difference) >= abs(difference) * (1 - 1e-12)
    low, high = _percentiles(drawn)
    return Difference(observed[0], observed[1], difference, low, high, float((1 + far.sum()) / (1 + len(drawn))))


def how_sure(intervals: Mapping[str, Mapping[str, Any]]) -> str:
    """The method of the intervals of a result, in words; "" where it has none."""
    ways = dict.fromkeys(str(interval.get("by")) for interval in intervals.values())
    return f"95 % intervals over records: {' or '.join(ways)}" if ways else ""


def units_of(keys: Sequence[str]) -> np.ndarray:
    """The number of each key, in the order in which they come [items]."""
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)


def _percentiles(values: np.ndarray) -> tuple[float, float]:
    low, high = np.percentile(values, (2.5, 97.5))
    return float(low), float(high)
