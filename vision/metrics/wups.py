"""WUPS, the score of DAQUAR (Malinowski and Fritz, NIPS 2014, section 3.4), where an answer is a set of words.

    WUPS(A, T) = min( prod over a in A of max over t in T of m(a, t),  prod over t in T of max over a in A of m(a, t) )

m(a, t) is 1 for equal words, else the largest wup of their noun senses (`vision.metrics.wordnet`), times 0.1 if that is
below the threshold. At 0.9 similar words count, at 0.0 everything does; if only equal words count it is accuracy over
sets. As in the published script, a word that is not a noun in WordNet has no similar words.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from vision.metrics.wordnet import Nouns

THRESHOLDS = (0.9, 0.0)
_BELOW = 0.1

Measure = Callable[[str, str], float]


def wups(predicted: Iterable[str], true: Iterable[str], measure: Measure) -> float:
    """The score of one answer, in 0..1; both are sets of words in one normal form."""
    mine, theirs = set(predicted), set(true)
    if not mine or not theirs:
        return float(mine == theirs)
    ours = math.prod(max(measure(a, t) for t in theirs) for a in mine)
    return min(ours, math.prod(max(measure(a, t) for a in mine) for t in theirs))


def equal(one: str, other: str) -> float:
    """1 for equal words."""
    return float(one == other)


def alike(nouns: Nouns, threshold: float) -> Measure:
    """m of a threshold."""

    def measure(one: str, other: str) -> float:
        if one == other:
            return 1.0
        best = nouns.likeness(one, other)
        return best if best >= threshold else _BELOW * best

    return measure
