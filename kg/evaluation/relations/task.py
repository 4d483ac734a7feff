"""Relation classification: which relation a text states between two marked mentions (FewRel, TACRED, SemEval-2010)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from kg.objectives.relations import Relations
from workbench.evaluation.classify.task import Classification, ClassifyScoring, LabelTuning, class_objective
from workbench.evaluation.inherited import text_sequence
from workbench.evaluation.measured import Made
from workbench.evaluation.task import Setup
from workbench.objectives.classify import Classify
from workbench.options.bounds import Name
from workbench.recipe.spec import Recipe
from workbench.sequences.sequence import Sample


@dataclass(frozen=True, kw_only=True)
class RelationTuning(LabelTuning):
    """Fine-tune a pretrained run to tell the relation between the head and the tail of a text.

    CORPUS holds texts with `marks` (head and tail) and the label `relation`, as `prepare text` makes of FewRel and
    SemEval-2010 task 8 (--format related-mentions). The steps that bring in knowledge are those of pretraining.

    Example:

      workbench finetune relations runs/ernie-thu corpora/fewrel-train --epochs 10 --seeds 3
    """

    head: Annotated[Name, typer.Option(help="The token on both sides of the head.")] = "#"
    tail: Annotated[Name, typer.Option(help="The token on both sides of the tail.")] = "$"
    negative: Annotated[
        Name | None, typer.Option(help="The class of pairs without a relation: no_relation, NA, Other.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class RelationScoring(ClassifyScoring):
    """Accuracy and macro F1; of a run with a --negative class the micro scores of the other relations (TACRED).

    Example:

      workbench evaluate relations runs/ernie-thu-relations corpora/fewrel-dev
    """


class RelationClassification(Classification):
    """One relation for a text with two marked mentions."""

    tuning = RelationTuning
    scoring = RelationScoring
    objective = Relations
    panels = ("kg.evaluation.relations.panel:related",)

    def setup(self, tuning: LabelTuning, base: Recipe) -> Setup:
        assert isinstance(tuning, RelationTuning)
        sequence = text_sequence(base, "kg.marked_pair", tuning.max_length, head=tuning.head, tail=tuning.tail)
        objective = {**class_objective(tuning), "objective": "kg.relations", "negative": tuning.negative}
        return Setup(sequence, objective, poolers=("text",))

    def variant(self, objective: Classify, scoring: ClassifyScoring) -> str:
        assert isinstance(objective, Relations)
        beside = f", without {objective.negative}" if objective.negative else ""
        return f"{super().variant(objective, scoring)}{beside}"

    def example(self, objective: Classify, sample: Sample, made: Made) -> dict[str, Any]:
        return {**super().example(objective, sample, made), "marks": sample["marks"]}
