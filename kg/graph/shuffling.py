"""False facts that look like the true ones: the shuffled-kg control.

Within each relation the tails are permuted among its triples. Every head keeps its number of triples of every
relation, every tail too, so that degrees, relation counts and the kinds of answers stay; only which tail belongs to
which head is gone.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from workbench.keyed import generator

TRIES = 200


def shuffle_tails(heads: np.ndarray, relations: np.ndarray, tails: np.ndarray, seed: int) -> np.ndarray:
    """New tails [triples] for the triples (h, r, t); depends on the graph and the seed alone.

    A permutation gives some heads the same tail twice; such a tail changes places with that of another triple, drawn
    until neither of the two is a repetition (a relation with hardly another arrangement may keep a few). What is true
    by chance stays: where half of the heads have the same tail, a permutation gives it to many of them again.
    """
    rng = generator("shuffled graph", seed)
    order = np.argsort(relations, kind="stable")
    shuffled = np.array(tails)
    for members in np.split(order, np.flatnonzero(np.diff(relations[order])) + 1):
        mixed = rng.permutation(shuffled[members])
        shuffled[members] = _without_repetition(heads[members], mixed, rng)
    return shuffled


def _without_repetition(heads: np.ndarray, tails: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """`tails`, some of them exchanged so that no (head, tail) occurs twice, as far as it goes."""
    repeated = _repeated(heads, tails)
    if not len(repeated):
        return tails
    h, t = heads.tolist(), tails.tolist()
    pairs = Counter(zip(h, t, strict=True))
    for i in repeated.tolist():
        if pairs[h[i], t[i]] < 2:
            continue  # an earlier exchange took the other one away
        for j in rng.integers(len(t), size=TRIES).tolist():
            if h[i] != h[j] and not pairs[h[i], t[j]] and not pairs[h[j], t[i]]:
                pairs.subtract([(h[i], t[i]), (h[j], t[j])])
                t[i], t[j] = t[j], t[i]
                pairs.update([(h[i], t[i]), (h[j], t[j])])
                break
    return np.asarray(t, tails.dtype)


def _repeated(heads: np.ndarray, tails: np.ndarray) -> np.ndarray:
    """Places whose (head, tail) occurs at an earlier place too."""
    pairs = heads.astype(np.int64) << 32 | tails
    order = np.argsort(pairs, kind="stable")
    return order[1:][np.diff(pairs[order]) == 0]
