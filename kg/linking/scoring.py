"""Scores of the entities of the names in a text, from its words and the names' tables.

    p(e | mention, context) = softmax over e of  log prior(e) + CONTEXT fit(e, context)

The fit is that of `kg.linking.context`: the sum of the weights of the distinct words that the profile of e shares with
the words around the mention. A name keeps the words of all its entities' profiles as one set. What that shares with
the text's words are a few, and only their places and weights are looked at.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from math import exp
from typing import NamedTuple

import numpy as np

from kg.linking.context import Profiles, TextWords
from kg.linking.name_tables import NameTables
from kg.linking.names import Found

CONTEXT = 0.5  # what a shared word counts: words of one context are not independent
KEPT_CANDIDATES = 1 << 20
"""Words of profiles that are kept next to the names that texts have; some 200 bytes each."""
_PAIRWISE = 8
"""Numpy adds up that many numbers and more in another order than from the first to the last."""

Ranked = list[tuple[str, float]]


class _Candidates(NamedTuple):
    """The entities of a name, and their places and weights by the words of their profiles."""

    entities: list[int]
    logs: list[float]
    words: frozenset[int]
    weights: dict[int, list[tuple[int, float]]]
    alone: Ranked
    """The entities by their priors alone, the best first."""


class CandidateScorer:
    """Scores the candidates of names by their priors, and by the context where there are profiles."""

    def __init__(self, made: NameTables, profiles: Profiles | None) -> None:
        self.made, self.profiles = made, profiles
        self._known: dict[int, _Candidates] = {}
        self._words = 0

    def ranked(self, text: TextWords, found: Sequence[Found], most: int) -> list[Ranked]:
        """The entities of each name with their shares, the best first, `most` at most; ties go to the smaller id."""
        ranked: list[Ranked] = []
        known, seen = self._known, frozenset[int]() if self.profiles is None else text.distinct
        for number, start, end in found:
            name = known.get(number) or self._candidates(number)
            shared = name.words & seen
            if shared:
                fits = _fits(name, text.near(shared, start, end))
                logits = [log + CONTEXT * fit for log, fit in zip(name.logs, fits, strict=True)]
                ranked.append(self._by_share(name.entities, logits, most))
            else:
                ranked.append(name.alone[:most])
        return ranked

    def _by_share(self, entities: list[int], logits: list[float], most: int) -> Ranked:
        top = max(logits)
        shares = [exp(logit - top) for logit in logits]
        whole = sum(shares)
        ids = self.made.ids
        if most == 1 and logits.count(top) == 1:
            return [(ids[entities[logits.index(top)]], 1.0 / whole)]
        order = sorted(zip(shares, entities, strict=True), key=lambda item: (-item[0], item[1]))
        return [(ids[entity], share / whole) for share, entity in islice(order, most)]  # numbers are in the ids' order

    def _candidates(self, number: int) -> _Candidates:
        if self._words > KEPT_CANDIDATES:
            self._known.clear()
            self._words = 0
        part = slice(self.made.offsets[number], self.made.offsets[number + 1])
        entities = self.made.entities[part].tolist()
        logs = np.log(self.made.priors[part].astype(np.float64)).tolist()
        weights: dict[int, list[tuple[int, float]]] = {}
        if self.profiles is not None:
            for place, entity in enumerate(entities):
                for word, weight in zip(*(each.tolist() for each in self.profiles.of(entity)), strict=True):
                    weights.setdefault(word, []).append((place, weight))
                    self._words += 1
        alone = self._by_share(entities, logs, len(entities))
        found = self._known[number] = _Candidates(entities, logs, frozenset(weights), weights, alone)
        return found


def _fits(name: _Candidates, near: list[int]) -> Sequence[float]:
    """The sum of the weights of the words, for each entity of a name.

    Weights are 32-bit numbers and so is their sum, as an array of them is added up.
    """
    near.sort()
    fits = array("f", bytes(4 * len(name.entities)))
    weights = name.weights
    for word in near:
        for place, weight in weights[word]:
            fits[place] += weight
    if len(near) < _PAIRWISE:
        return fits
    counts = Counter(place for word in near for place, _ in weights[word])
    for place, count in counts.items():
        if count >= _PAIRWISE:
            shared = [weight for word in near for entity, weight in weights[word] if entity == place]
            fits[place] = np.array(shared, np.float32).sum()
    return fits
