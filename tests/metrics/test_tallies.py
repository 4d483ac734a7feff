"""Numbers as sums over items: for any draw of items they equal the results of published code."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import sacrebleu
from scipy import stats
from sklearn import metrics

from workbench.metrics.tallies import Tally
from workbench.metrics.texts import bleu_rows, statistics_of

ITEMS = 40
RNG = np.random.default_rng(3)
GOLD = RNG.integers(0, 4, ITEMS)
PREDICTED = np.where(RNG.random(ITEMS) < 0.5, GOLD, RNG.integers(0, 5, ITEMS))
X, Y = np.round(RNG.normal(size=ITEMS), 1), np.round(RNG.normal(size=ITEMS), 1)
SOME = RNG.integers(0, 2, ITEMS)
WORDS = np.array(["a", "b", "c", "d", "e f"])
MADE, WANTED = ([" ".join(RNG.choice(WORDS, RNG.integers(3, 9))) for _ in range(ITEMS)] for _ in range(2))
BLEU, CHRF = sacrebleu.metrics.BLEU(), sacrebleu.metrics.CHRF()


def _texts(draw: np.ndarray) -> tuple[list[str], list[list[str]]]:
    return [MADE[i] for i in draw], [[WANTED[i] for i in draw]]


CASES: dict[str, tuple[Tally, Callable[[np.ndarray], float]]] = {
    "mean": (Tally.mean(X, SOME), lambda i: X[i][SOME[i] > 0].mean()),
    "share": (Tally.share(X > 0, SOME), lambda i: (X[i][SOME[i] > 0] > 0).mean()),
    "percentage": (Tally.of("percentage", X > 0, np.ones(ITEMS)), lambda i: 100 * (X[i] > 0).mean()),
    "means": (
        Tally.of("means", X, np.ones(ITEMS), Y * SOME, SOME),
        lambda i: (X[i].mean() + Y[i][SOME[i] > 0].mean()) / 2,
    ),
    "exp_mean": (Tally.of("exp_mean", X, Y**2), lambda i: np.exp(X[i].sum() / (Y[i] ** 2).sum())),
    "macro_f1": (
        Tally.of("macro_f1", GOLD, PREDICTED),
        lambda i: metrics.f1_score(GOLD[i], PREDICTED[i], average="macro", zero_division=0),
    ),
    "macro_f1 without a class": (
        Tally.of("macro_f1", GOLD - 1, PREDICTED - 1),
        lambda i: metrics.f1_score(GOLD[i], PREDICTED[i], average="macro", zero_division=0, labels=_but_first(i)),
    ),
    "macro_recall": (
        Tally.of("macro_recall", GOLD, np.minimum(PREDICTED, 3)),
        lambda i: metrics.balanced_accuracy_score(GOLD[i], np.minimum(PREDICTED[i], 3)),
    ),
    "mcc": (Tally.of("mcc", GOLD, PREDICTED), lambda i: metrics.matthews_corrcoef(GOLD[i], PREDICTED[i])),
    "pearson": (Tally.of("pearson", X, Y), lambda i: stats.pearsonr(X[i], Y[i])[0]),
    "spearman": (Tally.of("spearman", X, Y), lambda i: stats.spearmanr(X[i], Y[i])[0]),
    "median": (
        Tally.of("median", X, np.ones(ITEMS), Y, SOME),
        lambda i: np.median(np.concatenate([X[i], Y[i][SOME[i] > 0]])),
    ),
    "bleu": (
        Tally("bleu", bleu_rows(BLEU, MADE, [[one] for one in WANTED])),
        lambda i: BLEU.corpus_score(*_texts(i)).score,
    ),
    "chrf": (
        Tally("chrf", np.array(statistics_of(CHRF, MADE, [WANTED]), float)),
        lambda i: CHRF.corpus_score(*_texts(i)).score,
    ),
}


def _but_first(draw: np.ndarray) -> list[int]:
    return sorted({*GOLD[draw].tolist(), *PREDICTED[draw].tolist()} - {0})


@pytest.mark.parametrize("name", CASES)
def test_a_number_of_drawn_items_is_that_of_other_code(name: str) -> None:
    tally, wanted = CASES[name]
    for _ in range(8):
        draw = np.random.default_rng(_).integers(0, ITEMS, ITEMS)
        weights = np.bincount(draw, minlength=ITEMS)[None].astype(float)
        assert tally.value(weights)[0] == pytest.approx(wanted(draw), abs=1e-9)
    assert tally.whole == pytest.approx(wanted(np.arange(ITEMS)), abs=1e-9)


def test_f1_and_the_f1_of_means_are_by_hand() -> None:
    assert Tally.of("f1", [1, 0], [2, 1], [1, 1]).whole == pytest.approx(2 * 1 / 5)
    assert Tally.of("f1_of_means", [1, 0], [1, 1], [1, 1], [1, 1]).whole == pytest.approx(2 * 0.5 * 1 / 1.5)
    assert Tally.of("f1", [0], [0], [0]).whole == 0


def test_few_matches_are_smoothed_as_sacrebleu_does() -> None:
    made, wanted = ["a x y z q r"], ["a b c d e f"]
    assert Tally("bleu", bleu_rows(BLEU, made, [wanted])).whole == pytest.approx(
        BLEU.corpus_score(made, [wanted]).score
    )
    assert Tally("bleu", bleu_rows(BLEU, ["x"], [["a b"]])).whole == 0


def test_units_are_drawn_as_wholes() -> None:
    """A unit's weight is that of all of its items, in sums and in what is ordered."""
    units = np.repeat(np.arange(10), 4)
    of_units = np.random.default_rng(0).integers(0, 3, (2, 10)).astype(float)
    for tally, _ in CASES.values():
        assert tally.value_of_units(of_units, units) == pytest.approx(tally.value(of_units[:, units]))
