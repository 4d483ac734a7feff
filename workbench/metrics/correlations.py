"""Correlations of predicted numbers with the right ones (GLUE's STS-B, Wang et al., arXiv:1804.07461), as scipy
computes them."""

from __future__ import annotations

import numpy as np

from workbench.metrics.tallies import Tally


def number_scores(predicted: np.ndarray, gold: np.ndarray) -> dict[str, float]:
    """`pearson` and `spearman` of predicted and gold numbers, both [examples], and the mean `squared_error`.

    A correlation with numbers that are all equal, or with fewer than two, is 0.
    """
    from scipy import stats  # takes a second

    varied = len(gold) > 1 and np.ptp(gold) > 0 and np.ptp(predicted) > 0
    return {
        "pearson": float(stats.pearsonr(predicted, gold).statistic) if varied else 0.0,
        "spearman": float(stats.spearmanr(predicted, gold).statistic) if varied else 0.0,
        "squared_error": float(((predicted - gold) ** 2).mean()),
    }


def number_tallies(predicted: np.ndarray, gold: np.ndarray) -> dict[str, Tally]:
    """The tallies of the numbers of `number_scores`, by example."""
    error = Tally.mean((predicted - gold) ** 2)
    pearson, spearman = Tally.of("pearson", predicted, gold), Tally.of("spearman", predicted, gold)
    return {"pearson": pearson, "spearman": spearman, "squared_error": error}
