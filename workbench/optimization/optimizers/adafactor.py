"""Adafactor (Shazeer & Stern 2018, arXiv:1804.04235), torch's: second moments by row and column, no first moment."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import torch

from workbench.options.bounds import LearningRate, NotNegative


class Adafactor(torch.optim.Adafactor):
    """The paper's algorithm 5: its decay, clipping and constants, updates relative to a parameter's size.

    At the t-th update the rate is min(lr, 1 / sqrt(t)) times the root mean square of the parameter, so `train.lr` is a
    relative rate (the paper and T5: 0.01).

    Args:
        params: groups of parameters (given).
        lr: the peak learning rate (given).
        weight_decay: share of a weight, times `lr`, that an update takes away.
    """

    moments: ClassVar[float] = 0.0  # a row and a column for a matrix

    def __init__(self, params: Iterable[dict[str, Any]], lr: LearningRate, weight_decay: NotNegative = 0.0) -> None:
        super().__init__(params, lr, weight_decay=weight_decay)
