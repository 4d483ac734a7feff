"""The records of one corpus that others have too, by the hashes of their contents in the indexes of shards."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus
from workbench.corpora.shards.index import ShardIndex

MAX_RECORDS = 10_000_000
"""Larger corpora are not compared: a comparison reads the indexes of all shards."""


def shared_records(corpus: Corpus, others: Sequence[Corpus]) -> int | None:
    """The number of records of a corpus whose text (or image) is also that of a record of the others.

    None if it is not known: a corpus is too large, was prepared by an earlier version, or an index is gone.
    """
    if sum(each.records for each in (corpus, *others)) > MAX_RECORDS:
        return None
    try:
        ours, *theirs = (_contents(map(each.index, range(len(each.shards)))) for each in (corpus, *others))
    except WorkbenchError:
        return None  # gone, or changed
    if ours is None or any(each is None for each in theirs):
        return None
    return count_shared(ours, [each for each in theirs if each is not None])


def shared_of_shards(held_out: Iterable[ShardIndex], others: Iterable[ShardIndex]) -> int:
    """`shared_records` of shards that this version has just written."""
    ours, theirs = _contents(held_out), _contents(others)
    return 0 if ours is None or theirs is None else count_shared(ours, [theirs])


def count_shared(contents: np.ndarray, others: Sequence[np.ndarray]) -> int:
    """The number of hashes (0: there is no content) that the others have too."""
    shared = np.zeros(len(contents), np.bool_)
    for other in others:
        shared |= np.isin(contents, other)
    return int((shared & (contents != 0)).sum())


def _contents(indexes: Iterable[ShardIndex]) -> np.ndarray | None:
    found = [index.contents for index in indexes]
    known = [each for each in found if each is not None]
    return np.concatenate([np.empty(0, np.int64), *known]) if len(known) == len(found) else None
