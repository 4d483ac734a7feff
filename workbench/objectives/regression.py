"""Regression: a number for a text or a pair of texts (STS-B of GLUE, Wang et al., arXiv:1804.07461).

With p the pooled output of a stream and y the number,

    z = w . dropout(p) + b
    L = (z - y)^2, summed over the sequences that have the label
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor, nn

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Dropout, Name, Word
from workbench.metrics.correlations import number_scores
from workbench.pretraining.forward import HeadInputs
from workbench.pretraining.objective import BatchTargets, Head, LossOutput, Objective
from workbench.sequences.batch import Batch
from workbench.sequences.sequence import Sample, Sequence
from workbench.sequences.transfer import rows_where

if TYPE_CHECKING:
    from workbench.models.network import Network

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)


def number_of(label: Any) -> float | None:
    """The number that a label is, or spells (a table's `3.80`); None where it is no finite one."""
    found = float(label) if isinstance(label, Real) or _NUMBER.fullmatch(label) else math.nan
    return found if math.isfinite(found) else None


class Regression(Objective):
    """Regression for a text or a pair of texts (STS-B of GLUE, Wang et al., arXiv:1804.07461). The sample's `labels`
    have the number.

    Args:
        label: the name of the sample's label; a sequence without it is not counted. Null: an evaluation
            takes the only label of its corpus.
        stream: the stream whose pooled output is read.
        dropout: of the pooled output.
    """

    reads = ("labels",)
    measured = ("predicted", "gold")

    def __init__(self, label: Name | None = "label", stream: Word = "text", dropout: Dropout = 0.1) -> None:
        self.label, self.stream, self.dropout = label or "", stream, dropout

    @classmethod
    def constant_loss(cls, options: Mapping[str, Any], samples: Iterable[Sample]) -> float | None:
        """The variance of the numbers."""
        labels = (sample.get("labels", {}).get(options.get("label", "label")) for sample in samples)
        numbers = [found for label in labels if label is not None and (found := number_of(label)) is not None]
        return float(np.var(numbers)) if numbers else None

    def number(self, sequence: Sequence) -> float:
        """The number of a sequence; NaN where it has no such label.

        Raises:
            WorkbenchError: it is no finite number.
        """
        if self.label not in sequence.labels:
            return math.nan
        found = number_of(sequence.labels[self.label])
        if found is None:
            raise WorkbenchError(
                f"label {self.label!r} of sequence {sequence.key!r} is {sequence.labels[self.label]!r}; {self.name} "
                "predicts finite numbers (for names of classes: classify)"
            )
        return found

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        """Writes the target `numbers` [1] of every sequence; changes nothing."""
        for sequence in sequences:
            sequence.targets[self.name] = {"numbers": np.array([self.number(sequence)], np.float32)}
        return {}

    def count(self, batch: Batch) -> float:
        numbers = batch.targets.get(self.name, {}).get("numbers")
        return 0.0 if numbers is None else float(numbers.isfinite().sum())

    def measure(self, made: Mapping[str, Tensor]) -> dict[str, float]:
        """Correlations, and the mean squared error."""
        return number_scores(made["predicted"].double().numpy(), made["gold"].double().numpy())

    def head(self, network: Network) -> Head:
        if self.stream not in network.poolers:
            raise WorkbenchError(
                f"objective {self.name!r} reads the pooled {self.stream}; set model.poolers: [{self.stream}]"
            )
        return RegressionHead(network.pooled_size(self.stream), self.stream, self.dropout)


class RegressionHead(Head):
    """A number from the pooled output."""

    def __init__(self, hidden_size: int, stream: str, dropout: float) -> None:
        super().__init__()
        self.regressor = nn.Linear(hidden_size, 1)
        self.dropout = nn.Dropout(dropout)
        self.stream = stream

    def forward(self, inputs: HeadInputs) -> LossOutput:
        """Outputs: `logits` [sequences], the numbers of all; `predicted` and `gold` [sequences that have the label]."""
        pooled = inputs.network.pool(inputs.states, inputs.batch, self.stream)
        numbers = inputs.targets["numbers"]
        known = rows_where(inputs.known("numbers").isfinite(), numbers.device)
        found = self.regressor(self.dropout(pooled)).squeeze(1).float()
        predicted, gold = found.index_select(0, known), numbers.index_select(0, known)
        made = {"predicted": predicted, "gold": gold, "logits": found}
        return LossOutput(((predicted - gold) ** 2).sum(), {}, made)
