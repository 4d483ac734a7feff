"""Scores of ranked documents with graded judgments, as trec_eval and BEIR compute them.

    nDCG@k = DCG@k / ideal DCG@k,   DCG@k = sum over ranks i <= k of grade_i / log2(i + 1)

Documents without a judgment have the grade 0. A grade of 1 or more is relevant.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

NDCG, RECALL, MRR = 10, 100, 10
NAMES = (f"ndcg@{NDCG}", f"recall@{RECALL}", f"mrr@{MRR}")


def search_scores(ranked: Sequence[str], grades: Mapping[str, int]) -> dict[str, float]:
    """nDCG@10, recall@100 and MRR@10 of a query.

    Args:
        ranked: documents, the best first; 100 of them, or all.
        grades: of the judged documents; one at least is relevant.
    """
    found = np.array([max(grades.get(document, 0), 0) for document in ranked[: max(NDCG, RECALL)]], float)
    relevant = sum(grade > 0 for grade in grades.values())
    first = np.flatnonzero(found[:MRR])
    values = (
        _dcg(found) / _dcg(_ideal(grades)),
        float((found[:RECALL] > 0).sum()) / relevant,
        1.0 / (1 + int(first[0])) if len(first) else 0.0,
    )
    return dict(zip(NAMES, values, strict=True))


def random_order(grades: Mapping[str, int], present: Collection[str], documents: int) -> dict[str, float]:
    """The expected scores of a random order of documents.

    Args:
        grades: of the judged documents; one at least is relevant.
        present: the judged documents that can be ranked.
        documents: the number of documents that are ranked, these among them.
    """
    found = [max(grade, 0) for name, grade in grades.items() if name in present]
    relevant, total = sum(grade > 0 for grade in found), sum(found)
    share = relevant / sum(grade > 0 for grade in grades.values())
    places = min(NDCG, documents)
    expected = total / documents * float(_discounts(places).sum())
    first, none = 0.0, 1.0  # none: the probability that no relevant document is at an earlier rank
    for rank in range(min(MRR, documents)):
        hit = min(1.0, relevant / (documents - rank))
        first += none * hit / (rank + 1)
        none *= 1 - hit
    recall = share * min(RECALL, documents) / documents
    return dict(zip(NAMES, (expected / _dcg(_ideal(grades)), recall, first), strict=True))


def _dcg(grades: np.ndarray) -> float:
    best = grades[:NDCG]
    return float(best @ _discounts(len(best)))


def _ideal(grades: Mapping[str, int]) -> np.ndarray:
    return np.sort(np.array([max(grade, 0) for grade in grades.values()], float))[::-1]


def _discounts(places: int) -> np.ndarray:
    return 1 / np.log2(np.arange(2, places + 2))
