"""Relation classification as an objective: which relation does a text state between two marked mentions?

The class of the pooled output, as `workbench.objectives.classify`, or of the rows that stand for head and tail
(`kg.objectives._reading`), z = W dropout([h_head ; h_tail]) + b; next to its scores those that leave out the class of
pairs without a relation (`kg.metrics.relation_scores`).
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from kg.metrics.relation_scores import macro_f1, relation_scores, relation_tallies
from kg.objectives._reading import ROWS, Reading, by_mention, read, rows_to_read
from workbench.core.errors import unknown
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Dropout, Name, Word
from workbench.metrics.tallies import Tally
from workbench.models.network import Network
from workbench.objectives.classify import Classify, ClassifyHead
from workbench.pretraining.forward import HeadInputs
from workbench.pretraining.objective import BatchTargets, Head
from workbench.sequences.sequence import Sequence

ROLES = ("head", "tail")


class Relations(Classify):
    """Relation classification between two marked mentions of a text. The sample's `labels` name the relation.

    Args:
        classes, label, stream, dropout: as for `classify`.
        read: the network's pooler, the first row itself, the markers of head and tail, or their entity tokens
            (`stream: entity`).
        negative: the class of pairs without a relation (no_relation, NA, Other): with one, held-out passes also report
            the micro precision, recall and F1 of the others (TACRED), and `relations_macro_f1` over these
            (SemEval-2010 task 8).
    """

    def __init__(
        self,
        classes: list[Name],
        label: Name = "relation",
        negative: Name | None = None,
        read: Reading = "pooled",
        stream: Word = "text",
        dropout: Dropout = 0.1,
    ) -> None:
        super().__init__(classes, label, stream, dropout)
        if negative is not None and negative not in self.classes:
            raise unknown("relation", negative, self.classes, "negative")
        self.negative, self.read = negative, read

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        """Writes `labels` [1] of every sequence, and the rows of head and tail where they are read."""
        super().corrupt(sequences, draws)
        if by_mention(self.read):
            for sequence in sequences:
                sequence.targets[self.name][ROWS] = rows_to_read(self.read, sequence, ROLES, self.stream)
        return {}

    def head(self, network: Network) -> Head:
        if self.read == "pooled":
            return super().head(network)
        parts = len(ROLES) if by_mention(self.read) else 1
        return RelationsHead(
            parts * network.sizes[self.stream], len(self.classes), self.stream, self.dropout, self.read
        )

    def measure(self, made: Mapping[str, Tensor]) -> dict[str, float]:
        numbers = super().measure(made)
        if self.negative is None:
            return numbers
        names = self.names
        predicted, gold = ([names[row] for row in made[which].tolist()] for which in ("predicted", "gold"))
        scores = relation_scores(predicted, gold, self.negative)
        micro = {"precision": scores.precision, "recall": scores.recall, "f1": scores.f1}
        return {**numbers, **micro, "relations_macro_f1": macro_f1(predicted, gold, self.negative)}

    def tallies(self, made: Mapping[str, Tensor]) -> dict[str, Tally]:
        found = super().tallies(made)
        if self.negative is None:
            return found
        names = self.names
        predicted, gold = ([names[row] for row in made[which].tolist()] for which in ("predicted", "gold"))
        return found | relation_tallies(predicted, gold, self.negative)


class RelationsHead(ClassifyHead):
    """A linear layer on the states of other rows."""

    def __init__(self, in_features: int, classes: int, stream: str, dropout: float, reading: Reading) -> None:
        super().__init__(in_features, classes, stream, dropout)
        self.reading = reading

    def read(self, inputs: HeadInputs) -> Tensor:
        return read(self.reading, inputs, self.stream)
