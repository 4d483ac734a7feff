"""False facts that look like the true ones: the controls shuffled-kg and permuted-kg.

Under permuted-kg the tails of a relation are permuted at random: nothing is left but how frequent each tail is, and as
many triples are true as chance has it; a head may get the same tail twice.

Under shuffled-kg two triples of a relation exchange their tails, where that makes two false triples that are not there
yet, until hardly a true one is left (degree-preserving rewiring; Maslov and Sneppen, Science 296, 2002). Every head
keeps its number of triples of every relation, every tail too, so that degrees, relation counts and the kinds of answers
stay; only which tail belongs to which head is gone. Where most heads of a relation share a tail (the gender of people),
no arrangement makes all of them false; nor does this way find the arrangement that makes the most so (on CoDEx-S 7.9 %
stay true, of which 4.2 must). Where a relation has few tails, the false one is a code for the true one:
`kg.graph.patterns` measures that. The share of triples that stayed true is reported.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workbench.core.keyed import generator

ROUNDS = 200
PATIENCE = 20
"""Rounds without a gain after which a relation is left as it is."""
AFRESH = 10
"""Rounds after which the false triples that were exchanged again are forgotten, and may come back."""


@dataclass(frozen=True)
class ShuffledGraph:
    """New tails [triples], and the share of the triples that are true all the same (0 to 1)."""

    tails: np.ndarray
    true_share: float


def shuffle_tails(heads: np.ndarray, relations: np.ndarray, tails: np.ndarray, seed: int) -> ShuffledGraph:
    """New tails for the triples (h, r, t), which must be distinct; depends on the graph and the seed alone."""
    if not len(tails):
        return ShuffledGraph(np.array(tails), 0.0)
    order = np.argsort(relations, kind="stable")
    rewiring = _Rewiring(heads[order], relations[order], tails[order], generator("shuffled graph", seed))
    rewiring.run()
    shuffled = np.empty_like(tails)
    shuffled[order] = rewiring.tails
    return ShuffledGraph(shuffled, 1.0 - float(rewiring.false.mean()))


def permute_tails(heads: np.ndarray, relations: np.ndarray, tails: np.ndarray, seed: int) -> ShuffledGraph:
    """As `shuffle_tails`, with the tails of each relation in a random order."""
    if not len(tails):
        return ShuffledGraph(np.array(tails), 0.0)
    order = np.argsort(relations, kind="stable")
    drawn = generator("permuted graph", seed).random(len(tails))
    permuted = np.empty_like(tails)
    permuted[order] = tails[np.lexsort((drawn, relations))]  # relation by relation, like `order`
    heads, relations = heads.astype(np.int64), relations.astype(np.int64)
    size = int(tails.max()) + 1
    asked = np.unique(heads * (int(relations.max()) + 1) + relations, return_inverse=True)[1].reshape(-1)
    true = _among(asked * size + permuted, np.sort(asked * size + tails))
    return ShuffledGraph(permuted, float(true.mean()))


FALSE_FACTS = {"shuffled-kg": shuffle_tails, "permuted-kg": permute_tails}
"""The function that makes the false facts, by control."""


class _Rewiring:
    """Triples sorted by relation whose tails move. A key is a number that stands for (head, relation, tail)."""

    def __init__(self, heads: np.ndarray, relations: np.ndarray, tails: np.ndarray, rng: np.random.Generator) -> None:
        self.rng = rng
        self.entities = int(max(heads.max(), tails.max())) + 1
        asked = relations.astype(np.int64) * self.entities + heads
        self.questions = np.unique(asked, return_inverse=True)[1].astype(np.int64)  # below 2**31: keys fit in 64 bits
        _, self.relation, self.size = np.unique(relations, return_inverse=True, return_counts=True)
        self.begin = np.cumsum(self.size) - self.size
        self.tails = tails.astype(np.int64)
        self.truth = np.sort(self._keys(slice(None)))
        self.false = np.zeros(len(tails), np.bool_)
        self.made = self.truth[:0]  # keys of false triples, sorted

    def run(self) -> None:
        """Exchange tails until nothing is true, or no relation has gained for a while."""
        true = np.arange(len(self.tails))
        fewest = self.size + 1
        last_gain = np.zeros(len(self.size), np.int64)
        for number in range(ROUNDS):
            count = np.bincount(self.relation[true], minlength=len(self.size))
            gained = count < fewest
            fewest, last_gain[gained] = np.minimum(count, fewest), number
            true = true[(number - last_gain < PATIENCE)[self.relation[true]]]
            if not len(true):
                return
            new = self._exchange(true)
            if number % AFRESH == AFRESH - 1:
                self.made = np.sort(self._keys(self.false))
            else:
                self.made = np.sort(np.concatenate([self.made, new]), kind="stable")  # two runs: it merges them
            true = true[~self.false[true]]

    def _keys(self, places: np.ndarray | slice) -> np.ndarray:
        return self.questions[places] * self.entities + self.tails[places]

    def _exchange(self, one: np.ndarray) -> np.ndarray:
        """Offer each of these places the tail of another of its relation; returns the keys that came of it."""
        relation = self.relation[one]
        other = self.begin[relation] + (self.rng.random(len(one)) * self.size[relation]).astype(np.int64)
        pairs = _disjoint(np.stack([one, other]), len(self.tails))
        new = self.questions[pairs] * self.entities + self.tails[pairs[::-1]]
        good = ~(_among(new, self.truth) | _among(new, self.made)).any(axis=0)
        pairs, new = pairs[:, good], new[:, good]
        once = ~_repeated(new.reshape(-1)).reshape(new.shape).any(axis=0)  # two exchanges may make the same triple
        pairs, new = pairs[:, once], new[:, once]
        self.tails[pairs] = self.tails[pairs[::-1]]
        self.false[pairs] = True
        return new.reshape(-1)


def _disjoint(pairs: np.ndarray, count: int) -> np.ndarray:
    """The pairs [2, pairs] of two places that share none with another pair that is kept."""
    claim = np.full(count, -1)
    numbers = np.arange(pairs.shape[1])
    claim[pairs[0]] = numbers
    claim[pairs[1]] = numbers
    return pairs[:, (claim[pairs] == numbers).all(axis=0) & (pairs[0] != pairs[1])]


def _among(keys: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Which keys are among the known ones (sorted)."""
    if not len(known):
        return np.zeros(keys.shape, np.bool_)
    place = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    return known[place] == keys


def _repeated(keys: np.ndarray) -> np.ndarray:
    """Which keys occur at an earlier place too."""
    order = np.argsort(keys, kind="stable")
    again = np.zeros(len(keys), np.bool_)
    again[order[1:]] = np.diff(keys[order]) == 0
    return again
