"""Classification of a text or a pair of texts (BERT, arXiv:1810.04805, section 4.1): one of several classes.

With p the pooled output of a stream and y the class,

    z = W dropout(p) + b
    L = -log softmax(z)[y], summed over the sequences that have a label
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor, nn

from workbench.core.errors import WorkbenchError, unknown
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Dropout, Name, Word
from workbench.metrics.classes import class_scores, class_tallies
from workbench.metrics.tallies import Tally
from workbench.objectives._token_head import TokenLoss
from workbench.pretraining.forward import HeadInputs
from workbench.pretraining.objective import BatchTargets, Head, LossOutput, Objective
from workbench.sequences.sequence import Sample, Sequence
from workbench.sequences.transfer import rows_where

if TYPE_CHECKING:
    from workbench.models.network import Network

UNLABELLED = -100
OTHER_SET = (
    "It belongs to another set of labels than the one that is learned: fine-tune a run on texts with these labels, or "
    "use texts with valid ones."
)
"""The advice about a class that is none of an objective's."""


class Classify(Objective):
    """Sequence classification of a text or a pair of texts (BERT, arXiv:1810.04805, section 4.1). The sample's `labels`
    name the class.

    Args:
        classes: names of the classes, or their numbers as text; the index of a class is its row.
        label: the name of the sample's label; a sequence without it is not counted. Null: an evaluation
            takes the only label of its corpus.
        stream: the stream whose pooled output is read.
        dropout: of the pooled output.
    """

    reads = ("labels",)
    measured = ("predicted", "gold")
    reported = ("scores",)

    def __init__(
        self, classes: list[Name], label: Name | None = "label", stream: Word = "text", dropout: Dropout = 0.1
    ) -> None:
        if len(classes) < 2 or len(set(classes)) != len(classes):
            raise WorkbenchError(
                f"objective classify: classes has {len(classes)} entries, {len(set(classes))} of them different; "
                "allowed: two or more different ones"
            )
        self.classes = {name: row for row, name in enumerate(classes)}
        self.rows = self.classes
        self.label, self.stream, self.dropout = label or "", stream, dropout

    @classmethod
    def class_names(cls, options: Mapping[str, Any]) -> list[str] | None:
        return options.get("classes")

    @classmethod
    def constant_loss(cls, options: Mapping[str, Any], samples: Iterable[Sample]) -> float | None:
        """The entropy of the classes: ln of their number where all are as frequent."""
        labels = (sample.get("labels", {}).get(options.get("label", "label")) for sample in samples)
        counts = np.array([*Counter(str(label) for label in labels if label is not None).values()], np.float64)
        return float(-(counts / counts.sum() * np.log(counts / counts.sum())).sum()) if len(counts) > 1 else None

    @property
    def names(self) -> list[str]:
        """The classes by their rows, and behind them those that only a corpus of `read_as` has."""
        return list(self.rows)

    def read_as(self, classes: Iterable[str]) -> None:
        """Read a corpus of these classes. One that is none of the objective's own is never predicted."""
        others = sorted({*classes} - self.classes.keys())
        self.rows = {name: row for row, name in enumerate([*self.classes, *others])}

    def row(self, sequence: Sequence) -> int:
        """The class of a sequence; -100 where it has no such label.

        Raises:
            WorkbenchError: it is none of the classes.
        """
        if self.label not in sequence.labels:
            return UNLABELLED
        name = str(sequence.labels[self.label])
        if name not in self.rows:
            where = f"label {self.label!r} of sequence {sequence.key!r}"
            raise unknown("class", name, self.classes, where, advice=OTHER_SET)
        return self.rows[name]

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        """Writes the target `labels` [1] of every sequence; changes nothing."""
        for sequence in sequences:
            sequence.targets[self.name] = {"labels": np.array([self.row(sequence)], np.int64)}
        return {}

    def measure(self, made: Mapping[str, Tensor]) -> dict[str, float]:
        return class_scores(made["predicted"].numpy(), made["gold"].numpy())

    def tallies(self, made: Mapping[str, Tensor]) -> dict[str, Tally]:
        """The tallies of the numbers of `measure`, by example."""
        return class_tallies(made["predicted"].numpy(), made["gold"].numpy())

    def head(self, network: Network) -> Head:
        if self.stream not in network.poolers:
            raise WorkbenchError(
                f"objective {self.name!r} reads the pooled {self.stream}; set model.poolers: [{self.stream}]"
            )
        return ClassifyHead(network.pooled_size(self.stream), len(self.classes), self.stream, self.dropout)


class ClassifyHead(Head):
    """A linear layer on the pooled output."""

    by_class = ("classifier.weight", "classifier.bias")

    def __init__(self, hidden_size: int, classes: int, stream: str, dropout: float) -> None:
        super().__init__()
        self.classifier = nn.Linear(hidden_size, classes)
        self.dropout = nn.Dropout(dropout)
        self.stream = stream
        self.loss = TokenLoss()

    def read(self, inputs: HeadInputs) -> Tensor:
        """The input of the classifier [sequences, in_features]."""
        return inputs.network.pool(inputs.states, inputs.batch, self.stream)

    def logits(self, inputs: HeadInputs) -> Tensor:
        """[sequences, classes]."""
        logits: Tensor = self.classifier(self.dropout(self.read(inputs)))
        return logits

    def forward(self, inputs: HeadInputs) -> LossOutput:
        """Metric `accuracy`. Outputs: `logits` [sequences, classes], and of labelled sequences `predicted`, `gold` and
        `scores` (logits) of all classes."""
        return class_output(self.logits(inputs), inputs, self.loss)


def class_output(logits: Tensor, inputs: HeadInputs, score: TokenLoss) -> LossOutput:
    """The loss of the logits [sequences, classes] of all sequences, and what heads of classes hand on."""
    labels = inputs.targets["labels"]
    loss, metrics, _ = score(logits, labels.masked_fill(labels >= logits.shape[1], UNLABELLED))
    labelled = rows_where(inputs.known("labels") != UNLABELLED, labels.device)
    of_these = logits.index_select(0, labelled)
    made = {"predicted": of_these.argmax(-1), "gold": labels.index_select(0, labelled), "scores": of_these.float()}
    return LossOutput(loss, metrics, {**made, "logits": logits})
