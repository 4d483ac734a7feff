"""Relation classification: the scores of TACRED and of SemEval-2010 task 8, which leave the negative class out.

TACRED (Zhang et al., EMNLP 2017): micro precision, recall and F1 over all relations but the negative one. Published
scripts differ only where nothing is predicted: the official scorer calls that precision 1, the evaluation script of
thunlp/ERNIE 0. `empty_precision` is that value, 1 by default. The negative class is `no_relation` in TACRED's own
files and `NA` in ERNIE's.

SemEval-2010 task 8 (Hendrickx et al., 2010), the official score: macro F1 over nine relations, without `Other`. A
relation's two directions, `R(e1,e2)` and `R(e2,e1)`, are one relation, found where its direction is right too:

    P_R = right / predicted to be R in either direction        R_R = right / R in either direction
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from workbench.metrics.tallies import Tally

DIRECTION = re.compile(r"\((e1,e2|e2,e1)\)$")


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


def macro_f1(predicted: Sequence[str], gold: Sequence[str], negative: str) -> float:
    """The mean F1 of the relations that are predicted or gold somewhere, as a share; 0 where there is none.

    Raises:
        ValueError: the two differ in length.
    """
    right, found, wanted = Counter[str](), Counter[str](), Counter[str]()
    for ours, theirs in zip(predicted, gold, strict=True):
        found[DIRECTION.sub("", ours)] += 1
        wanted[DIRECTION.sub("", theirs)] += 1
        right[DIRECTION.sub("", ours)] += ours == theirs
    relations = (found | wanted).keys() - {negative}
    return fmean(2 * right[name] / (found[name] + wanted[name]) for name in relations) if relations else 0.0


def relation_tallies(predicted: Sequence[str], gold: Sequence[str], negative: str) -> dict[str, Tally]:
    """What each example adds to `precision`, `recall` and `f1` of `relation_scores`, and to `macro_f1`. Precision has
    none where nothing is predicted at all."""
    pairs = list(zip(predicted, gold, strict=True))
    right = [p == g != negative for p, g in pairs]
    found, wanted = ([name != negative for name in names] for names in (predicted, gold))
    merged = {name: DIRECTION.sub("", name) for name in {*predicted, *gold}}
    numbers = {name: place for place, name in enumerate(sorted({*merged.values()} - {negative}))} | {negative: -1}
    rows = [(numbers[merged[g]], numbers[merged[p]], p == g) for p, g in pairs]
    return {
        **({"precision": Tally.of("share", right, found)} if any(found) else {}),
        "recall": Tally.of("share", right, wanted),
        "f1": Tally.of("f1", right, found, wanted),
        "relations_macro_f1": Tally("macro_f1", np.array(rows, float)),
    }
