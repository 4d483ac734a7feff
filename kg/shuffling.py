"""False facts that look like the true ones: the shuffled-kg control.

Within each relation the tails are permuted among its triples. Every head keeps its number of triples of every
relation, every tail too, so that degrees, relation counts and the kinds of answers stay; only which tail belongs to
which head is gone.
"""

from __future__ import annotations

import numpy as np

from workbench.keyed import generator

ROUNDS = 50


def shuffle_tails(heads: np.ndarray, relations: np.ndarray, tails: np.ndarray, seed: int) -> np.ndarray:
    """New tails [triples] for the triples (h, r, t); depends on the graph and the seed alone.

    A permutation gives some heads the same tail twice; such tails are drawn again among the relation's triples until
    none is left. A relation with hardly another arrangement may keep a few after 50 rounds.
    """
    rng = generator("shuffled graph", seed)
    order = np.argsort(relations, kind="stable")
    shuffled = np.array(tails)
    for members in np.split(order, np.flatnonzero(np.diff(relations[order])) + 1):
        mixed = rng.permutation(shuffled[members])
        shuffled[members] = _without_repetition(heads[members], mixed, rng)
    return shuffled


def _without_repetition(heads: np.ndarray, tails: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """`tails`, rearranged so that no (head, tail) occurs twice, as far as it goes."""
    for _ in range(ROUNDS):
        repeated = _repeated(heads, tails)
        if not len(repeated):
            break
        among = np.union1d(repeated, rng.integers(len(tails), size=2 * len(repeated)))
        tails[among] = rng.permutation(tails[among])
    return tails


def _repeated(heads: np.ndarray, tails: np.ndarray) -> np.ndarray:
    """Places whose (head, tail) occurs at an earlier place too."""
    pairs = heads.astype(np.int64) << 32 | tails
    order = np.argsort(pairs, kind="stable")
    return order[1:][np.diff(pairs[order]) == 0]
