"""The baselines that a result does not reach."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

SMALL_IS_GOOD = ("perplexity", "rank", "error", "bits", "loss")
FEWER = re.compile(r", [\d,]+ images$")
"""The end of the name of a baseline over fewer images: its ranks cannot be compared with the result's."""
SAME, CHANCE = "same features", "chance"
OF_SAME = "image_retrieval/mean_rank"
"""With one image's features for all it is exactly chance's, unlike recalls of ties and the best of several texts."""
MOST = 3
"""The most numbers that are named at once."""


def unreached(numbers: Mapping[str, float], baselines: Mapping[str, Mapping[str, float]]) -> dict[str, list[str]]:
    """The names of numbers by the joined names of the baselines above them (`chance, always yes`).

    Numbers where a smaller one is better are left out, and members of a group.
    """
    found: dict[str, list[str]] = {}
    for name, value in numbers.items():
        if name.count("/") < 2 and not any(word in name for word in SMALL_IS_GOOD):
            above = ", ".join(baseline for baseline, theirs in baselines.items() if value < theirs.get(name, value))
            found.setdefault(above, []).append(name)
    return {above: names for above, names in found.items() if above}


def equalled(numbers: Mapping[str, float], baselines: Mapping[str, Mapping[str, float]]) -> list[str]:
    """The baselines that equal all numbers, of at least two: the model predicts the same as they do."""
    found = {name: [own for own in theirs if own in numbers] for name, theirs in baselines.items()}
    return [
        name
        for name, shared in found.items()
        if len(shared) > 1 and all(numbers[own] == baselines[name][own] for own in shared)
    ]


def against(
    numbers: Mapping[str, float], baselines: Mapping[str, Mapping[str, float]], bounds: Collection[str] = ()
) -> str:
    """A text on the numbers that are below baselines, on a baseline that equals all of them, and on a control among the
    baselines that is better than chance; "" where there is nothing to report.

    Args:
        bounds: the baselines that nothing of this kind could exceed, so that it is no fault to be below them.
    """
    rivals = {name: theirs for name, theirs in baselines.items() if name not in bounds and not FEWER.search(name)}
    phrases = [f"{_listed(names)} below {above}" for above, names in unreached(numbers, rivals).items()]
    phrases += [f"the same as {name}" for name in equalled(numbers, rivals)]
    return "; ".join([*phrases, *_leaks(baselines)])


def _leaks(baselines: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    """Controls in which all images have one's features, but which rank better than chance: something else distinguishes
    the images."""
    for name, theirs in baselines.items():
        chance = baselines.get(name.replace(SAME, CHANCE, 1), {}) if name.startswith(SAME) else {}
        ours, by_chance = theirs.get(OF_SAME), chance.get(OF_SAME)
        if ours is not None and by_chance is not None and ours < by_chance * (1 - 1e-4):
            yield f"{name}: {OF_SAME} {ours:.3g} is better than the {by_chance:.3g} of chance"


def _listed(names: Sequence[str]) -> str:
    """The first few."""
    more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    return ", ".join(names[:MOST]) + more
