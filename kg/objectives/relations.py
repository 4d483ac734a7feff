"""Relation classification as an objective: which relation does a text state between two marked mentions?

The class of the pooled output, as `workbench.objectives.classify`; beside its scores those that leave out the class of
pairs without a relation (`kg.metrics.relations`).
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from kg.metrics.relations import macro_f1, relation_scores
from workbench.errors import unknown
from workbench.objectives.classify import Classify
from workbench.options.bounds import Dropout, Name, Word


class Relations(Classify):
    """The relation that the sample's `labels` name.

    Args:
        classes, label, stream, dropout: as for `classify`.
        negative: the class of pairs without a relation (no_relation, NA, Other): with one, held-out passes also tell
            the micro precision, recall and F1 of the others (TACRED), and `relations_macro_f1` over these
            (SemEval-2010 task 8).
    """

    def __init__(
        self,
        classes: list[Name],
        label: Name = "relation",
        negative: Name | None = None,
        stream: Word = "text",
        dropout: Dropout = 0.1,
    ) -> None:
        super().__init__(classes, label, stream, dropout)
        if negative is not None and negative not in self.classes:
            raise unknown("relation", negative, self.classes, "negative")
        self.negative = negative

    def measure(self, made: Mapping[str, Tensor]) -> dict[str, float]:
        numbers = super().measure(made)
        if self.negative is None:
            return numbers
        names = list(self.classes)
        predicted, gold = ([names[row] for row in made[which].tolist()] for which in ("predicted", "gold"))
        scores = relation_scores(predicted, gold, self.negative)
        micro = {"precision": scores.precision, "recall": scores.recall, "f1": scores.f1}
        return {**numbers, **micro, "relations_macro_f1": macro_f1(predicted, gold, self.negative)}
