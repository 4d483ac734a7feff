"""Which baselines a result does not reach."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

SMALL_IS_GOOD = ("perplexity", "rank", "error", "bits")
MOST = 3
"""Numbers that are named at once."""


def unreached(numbers: Mapping[str, float], baselines: Mapping[str, Mapping[str, float]]) -> dict[str, list[str]]:
    """The names of numbers by the baselines above them, as these are told (`chance, always yes`).

    Numbers where a smaller one is better are left out, and members of a group.
    """
    found: dict[str, list[str]] = {}
    for name, value in numbers.items():
        if name.count("/") < 2 and not any(word in name for word in SMALL_IS_GOOD):
            above = ", ".join(baseline for baseline, theirs in baselines.items() if value < theirs.get(name, value))
            found.setdefault(above, []).append(name)
    return {above: names for above, names in found.items() if above}


def equalled(numbers: Mapping[str, float], baselines: Mapping[str, Mapping[str, float]]) -> list[str]:
    """The baselines that are the same in all numbers, of several at least: the model says what they say."""
    found = {name: [own for own in theirs if own in numbers] for name, theirs in baselines.items()}
    return [
        name
        for name, shared in found.items()
        if len(shared) > 1 and all(numbers[own] == baselines[name][own] for own in shared)
    ]


def against(
    numbers: Mapping[str, float], baselines: Mapping[str, Mapping[str, float]], bounds: Collection[str] = ()
) -> str:
    """In words, which numbers are below baselines, and whether all are one's; "" where there is nothing to say.

    Args:
        bounds: those of the baselines that nothing of this kind could exceed, so that it is no fault to be below them.
    """
    baselines = {name: theirs for name, theirs in baselines.items() if name not in bounds}
    told = [f"{_listed(names)} below {above}" for above, names in unreached(numbers, baselines).items()]
    return "; ".join([*told, *(f"the same as {name}" for name in equalled(numbers, baselines))])


def _listed(names: Sequence[str]) -> str:
    """The first few."""
    more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    return ", ".join(names[:MOST]) + more
