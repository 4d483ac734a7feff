"""Relation classification: the TACRED score.

TACRED (Zhang et al., EMNLP 2017): micro precision, recall and F1 over all relations but the negative one. Published
scripts differ only where nothing is predicted: the official scorer calls that precision 1, the evaluation script of
thunlp/ERNIE 0. `empty_precision` is that value, 1 by default. The negative class is `no_relation` in TACRED's own
files and `NA` in ERNIE's.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class RelationScores:
    """Micro scores without the negative class; `accuracy` counts every example. Counts are of examples."""

    precision: float
    recall: float
    f1: float
    accuracy: float
    correct: int
    predicted: int
    gold: int
    examples: int
    empty_precision: float


def relation_scores(
    predicted: Sequence[Hashable], gold: Sequence[Hashable], negative: Hashable, empty_precision: float = 1.0
) -> RelationScores:
    """The TACRED score of predicted against gold relations, one per example.

    Raises:
        ValueError: the two differ in length, or there are no examples.
    """
    if len(predicted) != len(gold) or not gold:
        raise ValueError(f"{len(predicted)} predictions for {len(gold)} gold relations; need one each, at least one")
    pairs = list(zip(predicted, gold, strict=True))
    correct = sum(p == g != negative for p, g in pairs)
    guessed = sum(p != negative for p, _ in pairs)
    positive = sum(g != negative for _, g in pairs)
    precision = correct / guessed if guessed else empty_precision
    recall = correct / positive if positive else 0.0
    return RelationScores(
        precision=precision,
        recall=recall,
        f1=2 * precision * recall / (precision + recall) if precision + recall else 0.0,
        accuracy=sum(p == g for p, g in pairs) / len(pairs),
        correct=correct,
        predicted=guessed,
        gold=positive,
        examples=len(pairs),
        empty_precision=empty_precision,
    )
