"""Measures how well the true tails of a graph can be guessed from the false ones that a control shows.

A control that exchanges values may leave a code for the true ones. If a relation has two tails and each head must get
another tail than its own, the false tail determines the true one. So the true tail is guessed from the shown one, as
the tail that occurred with it most often in that relation. The baseline is the guess without it: the relation's most
frequent tail. Both are cross-validated (`FOLDS` folds): in-sample, tails that occur once would determine everything. If
a head has several tails in a relation, each is guessed from the one in its place. The other tails are not used, so the
number is a lower bound.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from workbench.components.build_context import note
from workbench.core.keyed import generator

log = logging.getLogger(__name__)

FOLDS = 5
MOST = 200_000
"""Maximum number of guessed triples; of more triples, this many are drawn at random."""
NAMED = 10
"""Number of relations that are named, those with the best guesses."""
FEW = 50
"""Relations of fewer triples are not named: their shares are luck."""


class PatternGuess(NamedTuple):
    """Shares of true tails (0 to 1): guessed from what is shown, and without it; and of how many triples."""

    right: float
    majority: float
    triples: int

    def __str__(self) -> str:
        return f"{100 * self.right:.1f} %, without it in {100 * self.majority:.1f} %"


class RemainingPatterns(NamedTuple):
    """The shares of all triples, and of each relation (by its row)."""

    overall: PatternGuess
    relations: dict[int, PatternGuess]


def remaining_patterns(relations: np.ndarray, true: np.ndarray, shown: np.ndarray) -> RemainingPatterns:
    """How well the true tails [triples] are guessed from those shown in their place [triples; any numbers]."""
    if len(true) > MOST:
        kept = generator("truth that remains").choice(len(true), MOST, replace=False)
        relations, true, shown = relations[kept], true[kept], shown[kept]
    of_relation = _numbered(relations)
    of_shown = _numbered(of_relation * (int(shown.max(initial=0)) + 2) + shown + 1)
    truth = _numbered(true)
    fold = generator("folds").permutation(len(truth)) % FOLDS
    right, majority = np.zeros(len(truth), np.bool_), np.zeros(len(truth), np.bool_)
    for number in range(FOLDS):
        asked = fold == number
        common = _commonest(of_relation, truth, ~asked)[of_relation[asked]]
        guess = _commonest(of_shown, truth, ~asked)[of_shown[asked]]
        majority[asked] = common == truth[asked]
        right[asked] = np.where(guess < 0, common, guess) == truth[asked]
    found = {}
    for relation in np.unique(relations):
        of = relations == relation
        found[int(relation)] = PatternGuess(float(right[of].mean()), float(majority[of].mean()), int(of.sum()))
    means = (float(right.mean()), float(majority.mean())) if len(truth) else (0.0, 0.0)
    return RemainingPatterns(PatternGuess(*means, len(truth)), found)


def report_remaining(
    control: str, path: Path, names: Sequence[str], left: RemainingPatterns, still_true: float | None, seed: int
) -> None:
    """Log what a control leaves of the truth, and note it with what a run reads.

    Args:
        path: of the graph.
        names: of the relations, by row.
        still_true: share of the triples that are true all the same (0 to 1), where false ones are shown.
    """
    share = "" if still_true is None else f"{100 * still_true:.2f} % of the triples are still true; "
    summary = f"{share}the true tail is guessed from what is shown in {left.overall}"
    log.info("%s under the control %s: %s", path, control, summary)
    many = [(of.right - of.majority, relation) for relation, of in left.relations.items() if of.triples >= FEW]
    most = [relation for gain, relation in sorted(many, key=lambda each: (-each[0], each[1]))[:NAMED] if gain > 0]
    if most and len(left.relations) > 1:
        summary += "; by relation: " + "; ".join(f"{names[r]} in {left.relations[r]}" for r in most)
    note(f"truth that is left under {control}", path, f"seed {seed}, {summary}")


def _numbered(values: np.ndarray) -> np.ndarray:
    """Numbers from 0 for what differs."""
    return np.unique(values.astype(np.int64), return_inverse=True)[1].reshape(-1).astype(np.int64)


def _commonest(groups: np.ndarray, values: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """By group the value that most of its counted rows have (of equal ones the commonest of all), -1 without any."""
    size = int(values.max(initial=0)) + 1
    often = np.bincount(values[counted], minlength=size)
    keys, counts = np.unique(groups[counted] * size + values[counted], return_counts=True)
    of, value = keys // size, keys % size
    order = np.lexsort((often[value], counts, of))
    found = np.full(int(groups.max(initial=-1)) + 1, -1)
    found[of[order]] = value[order]  # the last one of a group stays
    return found
