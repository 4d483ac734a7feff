"""Dependency heads: which token is the head of each word? (K-Adapter, Wang et al., arXiv:2002.01808, section 3.4.)

With h_w the state of a word's first token, r the row, counted from the sequence's first one, of the first token of its
head, and 0 for the root of the sentence,

    z_w = W dropout(h_w) + b                    (a class for each of the `positions`)
    L = -log softmax(z_w)[r], summed over the words whose head is in the sequence

The published code puts an attention of one head and another linear layer below W. It counts the sentence's last word
for no head. It assigns the heads of words to tokens one by one, so that every word of several tokens shifts them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from torch import Tensor, nn

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Count, Dropout, Word
from workbench.models.network import Network
from workbench.objectives._token_head import TokenLoss
from workbench.objectives.token_classification import rows_at
from workbench.pretraining.forward import HeadInputs
from workbench.pretraining.objective import BatchTargets, Head, LossOutput, Objective
from workbench.sequences.sequence import Rows, Sequence

ROOT = 0


class DependencyHeads(Objective):
    """Dependency parsing (K-Adapter, Wang et al., arXiv:2002.01808, section 3.4): the head of every word, which the
    sample's `dependencies` name.

    Words that begin inside a token, and those whose head lies outside of the sequence or begins inside a token, are not
    counted.

    Args:
        max_length: the number of rows among which a head is searched; by default the builder's.
        stream: the stream whose states are read.
        dropout: of these states.
    """

    reads = ("dependencies",)
    measured = ("predicted", "gold")

    def __init__(self, max_length: Count, stream: Word = "text", dropout: Dropout = 0.1) -> None:
        self.max_length, self.stream, self.dropout = max_length, stream, dropout

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        """Writes the targets `rows` and `labels` [words that are read] of every sequence, and takes the rows; changes
        nothing else.

        Raises:
            WorkbenchError: a sequence has no record of the words that it is read for, or begins without a row that
                represents the root.
        """
        for sequence in sequences:
            text = sequence.streams[self.stream]
            starts, distances = self._own(sequence).T
            free, rows = rows_at(text, starts)
            heads = np.where(distances == 0, ROOT, rows_at(text, starts + distances)[1])
            read = free & (rows >= 0) & (heads >= 0)
            text["taken"][rows[read]] = True
            sequence.targets[self.name] = {"rows": Rows(self.stream, rows[read]), "labels": heads[read]}
        return {}

    def _own(self, sequence: Sequence) -> np.ndarray:
        """The beginnings of the words that the sequence is read for, and the distances of their heads [words, 2]."""
        if "words" not in sequence.meta:
            raise WorkbenchError(
                f"objective {self.name!r}: sequence {sequence.key!r} has no record of the words that it is read for; "
                "use the builder `tagged_text`"
            )
        found = [(start, far) for start, _, far, _ in sequence.meta.get("dependencies", ())]
        begin, end = sequence.meta["own"]
        own = np.array([each for each in found if begin <= each[0] < end], np.int64).reshape(-1, 2)
        if len(own) and not sequence.streams[self.stream]["special"][ROOT]:
            raise WorkbenchError(
                f"objective {self.name!r}: the first row of sequence {sequence.key!r} is that of a word, and the root "
                "of a sentence needs one of its own; let the builder begin with [CLS]"
            )
        return own

    def measure(self, made: Mapping[str, Tensor]) -> dict[str, float]:
        """`uas`: the share of the words whose head is found (unlabelled attachment)."""
        return {"uas": float((made["predicted"] == made["gold"]).double().mean())}

    def head(self, network: Network) -> Head:
        return DependencyHeadsHead(self.width(network, self.stream), self)


class DependencyHeadsHead(Head):
    """A linear layer on the states of words' first tokens."""

    def __init__(self, hidden_size: int, options: DependencyHeads) -> None:
        super().__init__()
        self.classifier = nn.Linear(hidden_size, options.max_length)
        self.dropout = nn.Dropout(options.dropout)
        self.stream = options.stream
        self.loss = TokenLoss()

    def forward(self, inputs: HeadInputs) -> LossOutput:
        """Metric `accuracy`; outputs: `predicted` and `gold` [words]."""
        rows, labels = inputs.targets["rows"], inputs.targets["labels"]
        logits: Tensor = self.classifier(self.dropout(inputs.states[self.stream][rows]))
        loss, metrics, _ = self.loss(logits, labels)
        return LossOutput(loss, metrics, {"predicted": logits.argmax(-1), "gold": labels})
