"""The uncertainty of a number of a test set, and of a difference of two: bootstrap over items, and Wilson's interval.

The bootstrap (Efron and Tibshirani, 1993) draws as many units as there are, with replacement, and computes the number
of the draw. A unit is a key with all items that have it (the questions on one image, the mentions of a text), as
these are not independent. The interval of a number has the percentiles of the draws, corrected for their bias (Efron,
1987) and as far apart as those of t (Hesterberg, The American Statistician 2015, section 4.2).

A difference of two sides has the interval and the p value of t, so p <= .05 exactly where the 95 % interval leaves
out 0. Its variance is that of a mean over items and over seeds of training, both drawn at random (Searle, Casella and
McCulloch, Variance Components, 1992, chapter 4). With S seeds,

    V = I + max(0, B - E) / S

I is the variance of the mean difference over draws of the items. Both sides and all seeds get the same draw (Koehn,
EMNLP 2004). B is the variance of the difference over the seeds. E is the part of B that comes from the items: the
variance over the seeds of how far a draw moves each of them. The degrees of freedom are Satterthwaite's (Biometrics
1946). Seeds of two sides that are equally many are paired, in their order. Others are taken to vary alike on both
sides: B and E are pooled, and 1 / S is the sum of both.

Where the seeds vary more than the items (B / S > I), or there are two, the t test over the seeds alone is computed too
(the variance B / S, S - 1 degrees of freedom), and the wider one counts. Satterthwaite's approximation claims too much
there: B of a few seeds is often near E by chance.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from workbench.metrics.tallies import Tally

LEVEL = 0.975
Z = NormalDist().inv_cdf(LEVEL)
CELLS = 4_000_000
"""The draws of units that are in memory at once."""
DRAWS = 1_000
"""For the interval of a single number."""
FEW_UNITS, FEW_OF_CLASS = 50, 10
OF_FEW = "bootstrap (few records: covers 85 to 95 %)"
"""The method where there are fewer units, or fewer items of a class whose mean with other classes is the number."""


class Interval(NamedTuple):
    """A 95 % interval, and the method by which it was computed."""

    low: float
    high: float
    by: str


class Difference(NamedTuple):
    """Two sides, the second minus the first: their numbers, the difference with its interval, and the p value, or
    None where it would mean nothing."""

    first: float
    second: float
    difference: float
    low: float
    high: float
    p: float | None


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
        of_all = _drawn(others.values(), units, count, seed)
        for (name, tally), drawn in zip(others.items(), of_all, strict=True):
            few = total < FEW_UNITS or tally.rarest < FEW_OF_CLASS
            found[name] = Interval(*_corrected(drawn, tally.whole, total), OF_FEW if few else "bootstrap")
    return {name: found[name] for name in tallies if name in found}


def _drawn(tallies: Iterable[Tally], units: np.ndarray, count: int, seed: int) -> np.ndarray:
    """The numbers of the same draws [tallies, draws]."""
    each = list(tallies)
    parts = [
        [tally.value_of_units(weights, units) for tally in each] for weights in draws(int(units.max()) + 1, count, seed)
    ]
    return np.concatenate(parts, axis=1)


def _corrected(drawn: np.ndarray, whole: float, total: int) -> tuple[float, float]:
    """The ends of the interval of a number by its draws [draws] of `total` units."""
    from scipy.special import ndtr, ndtri, stdtrit  # its import takes 0.3 s, and every command imports this file

    near = 1e-12 * max(1.0, abs(whole))
    below = ((drawn < whole - near).mean() + (drawn <= whole + near).mean()) / 2
    shift = float(ndtri(np.clip(below, 1 / len(drawn), 1 - 1 / len(drawn))))
    reach = math.sqrt(total / (total - 1)) * float(stdtrit(total - 1, LEVEL))
    low, high = np.quantile(drawn, ndtr([2 * shift - reach, 2 * shift + reach]))
    return float(low), float(high)


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
    from scipy.special import stdtr, stdtrit

    whole = [np.array([tally.whole for tally in side]) for side in (first, second)]
    drawn = _drawn((*first, *second), units, count, seed)
    moved = [drawn[: len(first)] - whole[0][:, None], drawn[len(first) :] - whole[1][:, None]]
    difference, total = float(whole[1].mean() - whole[0].mean()), int(units.max()) + 1
    free = max(1, total - 1)
    items = float((moved[1].mean(0) - moved[0].mean(0)).var()) * total / free
    items = max(items, (difference / (total + 1)) ** 2)  # as if one more item had no difference
    half, p = 0.0, 0.0
    for variance, degrees in _tests(items, free, _spread(whole, moved, total / free)):
        error = math.sqrt(variance)
        half = max(half, error * float(stdtrit(degrees, LEVEL)))
        p = max(p, 2 * float(stdtr(degrees, -abs(difference) / error)) if error else 1.0)
    one, other = (float(of.mean()) for of in whole)
    return Difference(one, other, difference, difference - half, difference + half, p)


class _Spread(NamedTuple):
    """The variance of a difference over seeds, the part of it that comes from the items, and its degrees of freedom: 0
    of one seed a side."""

    between: float
    within: float
    free: int


def _spread(whole: list[np.ndarray], moved: list[np.ndarray], unbiased: float) -> _Spread:
    """The spread by the numbers of both sides [seeds] and how far the draws move them [seeds, draws]."""
    if len(whole[0]) == len(whole[1]):
        whole, moved = [whole[1] - whole[0]], [moved[1] - moved[0]]
    free = [len(of) - 1 for of in whole]
    share = sum(1 / len(of) for of in whole) / max(1, sum(free))
    several = [place for place, of in enumerate(free) if of]
    between = sum(free[place] * float(whole[place].var(ddof=1)) for place in several)
    within = sum(free[place] * float(moved[place].var(0, ddof=1).mean()) for place in several)
    return _Spread(share * between, share * unbiased * within, sum(free))


def _tests(items: float, free: int, seeds: _Spread) -> Iterator[tuple[float, float]]:
    """The variance of the difference over items and seeds, with its degrees of freedom, and that over the seeds alone
    where it may decide."""
    between, within, of_seeds = seeds
    if between <= within:
        yield items, free
    else:
        variance = items + between - within
        weight = items**2 / free + between**2 / of_seeds + within**2 / (of_seeds * free)
        yield variance, max(variance**2 / weight, of_seeds)
    if between > items or (between and of_seeds == 1):
        yield between, of_seeds


def how_sure(intervals: Mapping[str, Mapping[str, Any]]) -> str:
    """The method of the intervals of a result, in words; "" where it has none."""
    ways = dict.fromkeys(str(interval.get("by")) for interval in intervals.values())
    return f"95 % intervals over records: {' or '.join(ways)}" if ways else ""


def units_of(keys: Sequence[str]) -> np.ndarray:
    """The number of each key, in the order in which they come [items]."""
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)
