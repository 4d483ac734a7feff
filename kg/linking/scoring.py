"""Scores of the entities of the names in texts, from the words around and the names' tables.

    p(e | mention, context) = softmax over e of  log prior(e) + CONTEXT fit(e, context)

The fit is that of `kg.linking.context`: the sum of the weights of the distinct words that the profile of e shares with
the words around the mention. All mentions of joined texts are scored at once: the pairs (name, word) of the profiles
are sorted keys, in which the pairs (name of the mention, word near it) are looked up. Most are in no profile; a table
of flags, by some bits of a pair's hash, leaves these out at little cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np

from kg.linking.context import Profiles, TextWords, ranges
from kg.linking.joined_texts import JoinedTexts
from kg.linking.name_tables import NameTables
from kg.linking.names import Found

CONTEXT = 0.5  # what a shared word counts: words of one context are not independent
KEPT_CANDIDATES = 1 << 22
"""Words of profiles that are kept next to the names that texts have; some 20 bytes each."""
_FLAGS = 19
"""Bits of a flag's place."""

Ranked = list[tuple[str, float]]


class _Candidates(NamedTuple):
    """The entities of a name, and their places and weights by the words of their profiles."""

    entities: np.ndarray  # int32, the best first
    logs: np.ndarray  # float64, of their priors
    words: np.ndarray  # uint32, hashes, sorted; one that several profiles have is there several times
    flags: np.ndarray  # uint32, the places of their flags
    places: np.ndarray  # int32, in `entities`
    weights: np.ndarray  # float32


class CandidateScorer:
    """Scores the candidates of names by their priors, and by the context where there are profiles."""

    def __init__(self, made: NameTables, profiles: Profiles | None) -> None:
        self.made, self.profiles = made, profiles
        self._known: dict[int, _Candidates] = {}
        self._words = 0

    def ranked(self, texts: JoinedTexts, found: Sequence[Found], most: int) -> list[Ranked]:
        """The entities of each name with their shares, the best first, `most` at most; ties go to the smaller id."""
        if not found:
            return []
        numbers, starts, ends = np.fromiter(chain.from_iterable(found), np.int64, 3 * len(found)).reshape(-1, 3).T
        distinct, name = np.unique(numbers, return_inverse=True)
        known = self._known
        names = [known.get(number) or self._candidates(number) for number in distinct.tolist()]
        sizes = np.array([len(each.entities) for each in names])
        mention, places = ranges(sizes[name])  # of each candidate
        firsts = np.flatnonzero(places == 0)
        candidates = places + (sizes.cumsum() - sizes)[name[mention]]
        entities = np.concatenate([each.entities for each in names])[candidates]
        logits = np.concatenate([each.logs for each in names])[candidates]
        if self.profiles is not None:
            words = TextWords(texts).around(starts, ends)
            logits += CONTEXT * _fits(names, numbers, name, words, firsts, len(logits))
        shares = np.exp(logits - np.maximum.reduceat(logits, firsts)[mention])
        shares /= np.add.reduceat(shares, firsts)[mention]
        return self._best(mention, entities, shares, firsts, most)

    def _best(
        self, mention: np.ndarray, entities: np.ndarray, shares: np.ndarray, firsts: np.ndarray, most: int
    ) -> list[Ranked]:
        ids = self.made.ids  # in the numbers' order
        if most == 1:
            greatest = np.maximum.reduceat(shares, firsts)
            equal = np.where(shares == greatest[mention], entities, len(ids))
            best = zip(np.minimum.reduceat(equal, firsts).tolist(), greatest.tolist(), strict=True)
            return [[(ids[entity], share)] for entity, share in best]
        order = np.lexsort((entities, -shares, mention))
        ranked = [(ids[e], share) for e, share in zip(entities[order].tolist(), shares[order].tolist(), strict=True)]
        return [ranked[first : min(first + most, end)] for first, end in pairwise([*firsts.tolist(), len(ranked)])]

    def _candidates(self, number: int) -> _Candidates:
        if self._words > KEPT_CANDIDATES:
            self._known.clear()
            self._words = 0
        part = slice(self.made.offsets[number], self.made.offsets[number + 1])
        entities = np.array(self.made.entities[part])
        about = [] if self.profiles is None else [self.profiles.of(entity) for entity in entities.tolist()]
        words = np.concatenate([np.empty(0, np.uint32), *(words for words, _ in about)])
        order = words.argsort(kind="stable")
        words = words[order]
        places = np.arange(len(about), dtype=np.int32).repeat([len(each) for each, _ in about])[order]
        weights = np.concatenate([np.empty(0, np.float32), *(weights for _, weights in about)])[order]
        logs = np.log(self.made.priors[part].astype(np.float64))
        self._words += len(words)
        flags = _flags(np.full(len(words), number), words)
        found = _Candidates(entities, logs, words, flags, places, weights)
        self._known[number] = found
        return found


def _flags(numbers: np.ndarray, words: np.ndarray) -> np.ndarray:
    """The places of the flags of pairs: the numbers of names, and a word of each."""
    mixed = numbers.astype(np.uint32) * np.uint32(0x9E3779B1) + words
    return np.asarray(mixed >> np.uint32(32 - _FLAGS))


def _fits(
    names: Sequence[_Candidates],
    numbers: np.ndarray,
    name: np.ndarray,
    around: tuple[np.ndarray, np.ndarray],
    firsts: np.ndarray,
    candidates: int,
) -> np.ndarray:
    """The sum of the weights of the words that each candidate shares with those around its mention, float64.

    Args:
        names: the distinct names.
        numbers: of the mentions' names.
        name: of each mention, its place in `names`.
        around: see `TextWords.around`.
        firsts: the first candidate of each mention.
        candidates: of all mentions.
    """
    mentions, words = around
    flags = np.zeros(1 << _FLAGS, bool)
    flags[np.concatenate([each.flags for each in names])] = True
    met = np.flatnonzero(flags[_flags(numbers[mentions], words)])
    mentions, words = mentions[met], words[met]
    keys = np.concatenate([each.words for each in names]).astype(np.uint64)
    of = np.arange(len(names), dtype=np.uint64)
    keys |= of.repeat([len(each.words) for each in names]) << np.uint64(32)
    wanted = of[name[mentions]] << np.uint64(32) | words
    first = keys.searchsorted(wanted)
    met = np.flatnonzero(keys.take(first, mode="clip") == wanted) if len(keys) else first[:0]
    _, once = np.unique(mentions[met] * len(keys) + first[met], return_index=True)  # a word counts once
    mentions, first = mentions[met][once], first[met][once]
    pair, more = ranges(keys.searchsorted(keys[first], "right") - first)
    shared = first[pair] + more
    places = np.concatenate([each.places for each in names])[shared]
    weights = np.concatenate([each.weights for each in names])[shared]
    return np.bincount(firsts[mentions[pair]] + places, weights, candidates)
