"""Which baselines a result does not reach."""

from __future__ import annotations

from collections.abc import Mapping

SMALL_IS_GOOD = ("perplexity", "rank", "error", "bits")


def unreached(numbers: Mapping[str, float], baselines: Mapping[str, Mapping[str, float]]) -> tuple[str, list[str]]:
    """The name of the first number, and the baselines above it; none where a smaller number is better."""
    name, value = next(iter(numbers.items()), ("", 0.0))
    if any(word in name for word in SMALL_IS_GOOD):
        return name, []
    return name, [baseline for baseline, theirs in baselines.items() if value < theirs.get(name, value)]
