"""Tallies: a number over many items as the contribution of each item, so that it can be computed for any subset of
them.

A tally has a row of figures for each item, and a kind, which defines the number:

    mean             [x, w]                sum x / sum w
    share            [x, w]                the same where an item of weight 1 is right (1) or wrong (0)
    percentage       [x, w]                100 times a share
    means            [x, w, x, w, ...]     the mean of several such means
    f1               [right, found, gold]  2 right / (found + gold)
    f1_of_means      [x, w, y, v]          the harmonic mean of sum x / sum w and sum y / sum v
    exp_mean         [x, w]                exp(sum x / sum w): perplexity of nats and tokens
    macro_f1         [gold, predicted]     numbers of classes; the mean F1 of those that are gold or predicted somewhere
                     (and, third, whether it is right, where that is more than the same class; -1 is a class left out)
    macro_recall     [gold, predicted]     the mean over gold classes of the share of each that is right
    mcc              [gold, predicted]     Matthews' correlation of several classes
    pearson          [x, y]                as scipy; 0 where all x or all y are equal
    spearman         [x, y]                Pearson of the mean ranks
    median           [x, w, ...]           of all x whose w is not 0
    cka              [a, b, c]             sum a / sqrt(sum b sum c), of sums over pairs of items (`metrics.cka`)
    bleu             [matches 1..n, n-grams 1..n, length, reference's length], smoothed as sacrebleu does (`exp`)
    bleu_unsmoothed  the same, 0 where an order has no match
    chrf             [n-grams, of the reference, matches] for each of sacrebleu's orders

An item whose row is all zeros is ignored, except for `macro_f1`, `macro_recall`, `mcc`, `pearson`, `spearman` and
`cka`, which count all items. BLEU and chrF are times 100. The number of items that are drawn several times is that of
the rows times the number of draws of each (`value`), which is what the bootstrap needs
(`workbench.metrics.resampling`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np

Kind = Literal[
    "mean",
    "share",
    "percentage",
    "means",
    "f1",
    "f1_of_means",
    "exp_mean",
    "macro_f1",
    "macro_recall",
    "mcc",
    "pearson",
    "spearman",
    "median",
    "cka",
    "bleu",
    "bleu_unsmoothed",
    "chrf",
]
KINDS: tuple[str, ...] = get_args(Kind)
SHARES = ("share", "percentage")
CLASSES = ("macro_f1", "macro_recall", "mcc")
OF_ALL = (*CLASSES, "pearson", "spearman", "cka")
"""Kinds that count every item, also one whose row is zeros."""
CHRF_BETA = 2
MOST_CLASSES = 2**20
SIGNED = ("mean", "share", "percentage", "means", "f1_of_means", "exp_mean", "median")
"""Kinds whose figures are values, which may be negative, each with its weight, which may not."""


def tally_fault(kind: Kind, rows: np.ndarray) -> np.ndarray:
    """A mask of the rows [items, figures] that are impossible for a kind [items]: for rows from a file."""
    bad = ~np.isfinite(rows).all(1)
    if kind in CLASSES:
        classes = rows[:, :2]
        return bad | ((classes < -1) | (classes >= MOST_CLASSES) | (classes != np.round(classes))).any(1)
    if kind in SHARES:
        bad |= (rows[:, 0] < 0) | (rows[:, 0] > np.maximum(rows[:, 1], 1))  # a share above 1
    if kind in SIGNED:
        return bad | (rows[:, 1::2] < 0).any(1)
    return bad | (rows < 0).any(1) if kind not in OF_ALL else bad


@dataclass(frozen=True)
class Tally:
    """The contribution of each item to a number: `rows` [items, figures] of a kind."""

    kind: Kind
    rows: np.ndarray

    @classmethod
    def mean(cls, values: Sequence[float] | np.ndarray, weights: Any = None) -> Tally:
        """The mean of a value for each item; an item of weight 0 is ignored."""
        x = np.asarray(values, float)
        w = np.ones(len(x)) if weights is None else np.asarray(weights, float)
        return cls("mean", np.stack([np.where(w != 0, x, 0.0), w], axis=1))

    @classmethod
    def share(cls, right: Sequence[float] | np.ndarray, weights: Any = None) -> Tally:
        """The share of right items: 1 or 0 for each; an item of weight 0 is ignored. The caller declares by this that
        the number is a share, so that its interval is Wilson's; the values alone do not show it (all ranks may be
        1)."""
        return cls("share", cls.mean(right, weights).rows)

    @classmethod
    def of(cls, kind: Kind, *columns: Any) -> Tally:
        """A tally of a kind, from its columns [items] each."""
        return cls(kind, np.stack([np.asarray(column, float) for column in columns], axis=1))

    @property
    def whole(self) -> float:
        """The number of all items."""
        return float(self.value(np.ones((1, len(self.rows))))[0])

    def value(self, weights: np.ndarray) -> np.ndarray:
        """The number [draws] of items drawn with these weights [draws, items]."""
        if self.kind in _ORDERED:
            return _ORDERED[self.kind](self.rows, weights)
        return _SUMMED[self.kind](weights @ self.sums)

    def value_of_units(self, weights: np.ndarray, units: np.ndarray) -> np.ndarray:
        """The same for items that are drawn together: weights [draws, units], and the unit of each item [items]."""
        if self.kind in _ORDERED:
            return self.value(weights[:, units])
        together = np.zeros((weights.shape[1], self.sums.shape[1]))
        np.add.at(together, units, self.sums)
        return _SUMMED[self.kind](weights @ together)

    @cached_property
    def sums(self) -> np.ndarray:
        """The figures of the items that are added up [items, sums]: for classes whether each is right, found and
        gold."""
        if self.kind not in CLASSES:
            return self.rows
        gold, predicted, *reported = self.rows.astype(np.int64).T
        right = reported[0] != 0 if reported else gold == predicted
        count = int(self.rows[:, :2].max(initial=0)) + 1
        items, found = np.arange(len(gold)), np.zeros((len(gold), 3, count + 1))  # -1 is the last, and is left out
        found[items, 0, gold] = right
        found[items, 1, predicted] = 1
        found[items, 2, gold] = 1
        return found[:, :, :-1].reshape(len(gold), -1)

    @property
    def rarest(self) -> float:
        """The number of items of the rarest gold class, where a class counts as much as any other; else infinite."""
        if self.kind not in ("macro_f1", "macro_recall"):
            return math.inf
        gold = self.rows[:, 0]
        return float(np.unique(gold[gold >= 0], return_counts=True)[1].min(initial=len(gold)))

    @property
    def shares(self) -> tuple[int, int, float] | None:
        """Of a share of single items the number of right ones, their total, and the value of a right one, 1 or 100.
        None for other kinds, and where an item represents several (the words of a text)."""
        if self.kind not in SHARES or not np.isin(self.rows, (0, 1)).all() or not self.rows[:, 1].any():
            return None
        right, total = self.rows.sum(0).astype(int).tolist()
        return right, total, 100.0 if self.kind == "percentage" else 1.0


def _share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """part / whole, 0 where there is nothing to divide by."""
    found: np.ndarray = np.divide(part, whole, out=np.zeros_like(part, dtype=float), where=whole != 0)
    return found


def _mean(sums: np.ndarray) -> np.ndarray:
    return _share(sums[:, 0], sums[:, 1])


def _means(sums: np.ndarray) -> np.ndarray:
    found: np.ndarray = _share(sums[:, 0::2], sums[:, 1::2]).mean(1)
    return found


def _f1(sums: np.ndarray) -> np.ndarray:
    return _share(2 * sums[:, 0], sums[:, 1] + sums[:, 2])


def _f1_of_means(sums: np.ndarray) -> np.ndarray:
    x, y = _share(sums[:, 0], sums[:, 1]), _share(sums[:, 2], sums[:, 3])
    return _share(2 * x * y, x + y)


def _exp_mean(sums: np.ndarray) -> np.ndarray:
    found: np.ndarray = np.exp(np.minimum(_mean(sums), 700.0))
    return found


def _counts(sums: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The numbers of times that each class is right, found and gold: [draws, classes] each."""
    right, found, gold = sums.reshape(len(sums), 3, -1).swapaxes(0, 1)
    return right, found, gold


def _macro_f1(sums: np.ndarray) -> np.ndarray:
    right, found, gold = _counts(sums)
    return _share(_share(2 * right, found + gold).sum(1), ((found + gold) > 0).sum(1).astype(float))


def _macro_recall(sums: np.ndarray) -> np.ndarray:
    right, _, gold = _counts(sums)
    return _share(_share(right, gold).sum(1), (gold > 0).sum(1).astype(float))


def _mcc(sums: np.ndarray) -> np.ndarray:
    right, found, gold = _counts(sums)
    total = gold.sum(1)
    together = right.sum(1) * total - (found * gold).sum(1)
    apart = np.sqrt((total**2 - (found**2).sum(1)) * (total**2 - (gold**2).sum(1)))
    return _share(together, apart)


def _bleu(sums: np.ndarray, smooth: bool) -> np.ndarray:
    """Papineni et al. (ACL 2002); the k-th order without a match counts as 1 / 2^k matches where it is smoothed."""
    orders = (sums.shape[1] - 2) // 2
    matches, grams = sums[:, :orders].copy(), sums[:, orders : 2 * orders]
    made, wanted = sums[:, -2], sums[:, -1]
    if smooth:
        missed = (matches == 0) & (grams > 0)
        matches = np.where(missed & matches.any(1, keepdims=True), 0.5 ** missed.cumsum(1), matches)
    precisions = _share(matches, grams)
    short = np.exp(np.minimum(0.0, 1 - _share(wanted, made)))
    with np.errstate(divide="ignore"):
        found: np.ndarray = 100 * np.exp(np.log(precisions).mean(1)) * np.where(made > 0, short, 0.0)
    return found


def _chrf(sums: np.ndarray) -> np.ndarray:
    """Popović (WMT 2015): the mean over the orders that both sides have."""
    made, wanted, matches = sums[:, 0::3], sums[:, 1::3], sums[:, 2::3]
    present = (made > 0) & (wanted > 0)
    orders = present.sum(1).astype(float)
    precision = _share(np.where(present, _share(matches, made), 0.0).sum(1), orders)
    recall = _share(np.where(present, _share(matches, wanted), 0.0).sum(1), orders)
    factor = CHRF_BETA**2
    return 100 * _share((1 + factor) * precision * recall, factor * precision + recall)


def _pearson(rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
    x, y = rows.T
    return _correlation(np.broadcast_to(x, weights.shape), np.broadcast_to(y, weights.shape), weights)


def _spearman(rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
    x, y = (_mean_ranks(column, weights) for column in rows.T)
    return _correlation(x, y, weights)


def _cka(rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Each row is a row of a sum over pairs of items. If the weights change, so do both items of a pair: twice as much,
    up to terms of second order."""
    a, b, c = (2 * weights @ rows - rows.sum(0)).T
    return _share(a, np.sqrt(np.maximum(b * c, 0.0)))


def _correlation(x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """[draws, items] each -> [draws]; 0 where one side does not vary."""
    total = weights.sum(1, keepdims=True)
    x, y = (each - (each * weights).sum(1, keepdims=True) / total for each in (x, y))
    xx, yy, xy = ((one * other * weights).sum(1) for one, other in ((x, x), (y, y), (x, y)))
    tiny = 1e-18 * total[:, 0]
    return np.where((xx > tiny) & (yy > tiny), _share(xy, np.sqrt(np.maximum(xx * yy, 1e-300))), 0.0)


def _mean_ranks(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The rank of each item [draws, items], equal ones sharing the mean of theirs."""
    levels, level = np.unique(values, return_inverse=True)
    of_level = np.zeros((len(weights), len(levels)))
    for draw, row in enumerate(weights):
        of_level[draw] = np.bincount(level, row, len(levels))
    last = of_level.cumsum(1)
    found: np.ndarray = (last - (of_level - 1) / 2)[:, level]
    return found


def _median(rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
    x, w = rows[:, 0::2].ravel(), rows[:, 1::2].ravel()
    order = np.argsort(x, kind="stable")
    values, counted = x[order], (weights.repeat(rows.shape[1] // 2, axis=1) * (w != 0))[:, order]
    last = counted.cumsum(1)
    total = last[:, -1]
    low, high = np.floor((total - 1) / 2), np.ceil((total - 1) / 2)
    places = ((last <= side[:, None]).sum(1).clip(max=len(values) - 1) for side in (low, high))
    one, other = (values[place] for place in places)
    return np.where(total > 0, (one + other) / 2, 0.0)


_SUMMED: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "mean": _mean,
    "share": _mean,
    "percentage": lambda sums: 100 * _mean(sums),
    "means": _means,
    "f1": _f1,
    "f1_of_means": _f1_of_means,
    "exp_mean": _exp_mean,
    "macro_f1": _macro_f1,
    "macro_recall": _macro_recall,
    "mcc": _mcc,
    "bleu": lambda sums: _bleu(sums, smooth=True),
    "bleu_unsmoothed": lambda sums: _bleu(sums, smooth=False),
    "chrf": _chrf,
}
_ORDERED: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "pearson": _pearson,
    "spearman": _spearman,
    "median": _median,
    "cka": _cka,
}
