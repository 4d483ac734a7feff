"""Relation classification: which relation a text states between two marked mentions (FewRel, TACRED, SemEval-2010)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any

import typer

from kg.evaluation.relations.metric import relation_scores
from workbench.errors import unknown
from workbench.evaluation.classify.task import LENGTH, Classification, ClassifyScoring, ClassifyTuning
from workbench.evaluation.inherited import knowledge_steps, text_length
from workbench.evaluation.task import Setup
from workbench.objectives.classify import Classify
from workbench.options.bounds import Name
from workbench.recipe.spec import SequenceSpec
from workbench.runs.folder import read_recipe
from workbench.sequences.sequence import Sample


@dataclass(frozen=True, kw_only=True)
class RelationTuning(ClassifyTuning):
    """Fine-tune a pretrained run to tell the relation between the head and the tail of a text.

    CORPUS holds texts with `marks` (head and tail) and the label `relation`, as `prepare text` makes of FewRel and
    SemEval-2010 task 8 (--format related-mentions). The steps that bring in knowledge are those of pretraining.

    Example:

      workbench finetune relations runs/ernie-thu corpora/fewrel-train --epochs 10 --seeds 3
    """

    head: Annotated[Name, typer.Option(help="The token on both sides of the head.")] = "#"
    tail: Annotated[Name, typer.Option(help="The token on both sides of the tail.")] = "$"


@dataclass(frozen=True, kw_only=True)
class RelationScoring(ClassifyScoring):
    """Accuracy and macro F1; with --negative the micro precision, recall and F1 of the other relations (TACRED).

    Example:

      workbench evaluate relations runs/ernie-thu-relations corpora/fewrel-dev
    """

    negative: Annotated[
        Name | None, typer.Option(help="The class of pairs without a relation (no_relation, NA, Other).")
    ] = None


class RelationClassification(Classification):
    """One relation for a text with two marked mentions."""

    tuning = RelationTuning
    scoring = RelationScoring
    panels = ("kg.evaluation.relations.panel:related",)

    def setup(self, tuning: ClassifyTuning) -> Setup:
        assert isinstance(tuning, RelationTuning)
        base = read_recipe(tuning.run)
        builder = {
            "builder": "kg.marked_pair",
            "max_length": tuning.max_length or text_length(base, LENGTH),
            "head": tuning.head,
            "tail": tuning.tail,
        }
        return replace(super().setup(tuning), sequence=SequenceSpec(builder, steps=knowledge_steps(base)))

    def numbers(
        self, objective: Classify, predicted: list[int], gold: list[int], scoring: ClassifyScoring
    ) -> dict[str, float]:
        assert isinstance(scoring, RelationScoring)
        numbers = super().numbers(objective, predicted, gold, scoring)
        if scoring.negative is None:
            return numbers
        if scoring.negative not in objective.classes:
            raise unknown("relation", scoring.negative, objective.classes, "--negative")
        scores = relation_scores(predicted, gold, objective.classes[scoring.negative])
        return {**numbers, "precision": scores.precision, "recall": scores.recall, "f1": scores.f1}

    def variant(self, objective: Classify, scoring: ClassifyScoring) -> str:
        assert isinstance(scoring, RelationScoring)
        beside = f", without {scoring.negative}" if scoring.negative else ""
        return f"{super().variant(objective, scoring)}{beside}"

    def example(self, sample: Sample, prediction: str, label: str) -> dict[str, Any]:
        return {"text": sample["text"], "marks": sample["marks"], "prediction": prediction, "label": label}
