"""What the task relations is told on the command line; torch is not needed to read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from kg.objectives._reading import Reading
from workbench.evaluation.classify.options import ClassifyScoring, LabelTuning
from workbench.options.bounds import Name


@dataclass(frozen=True, kw_only=True)
class RelationTuning(LabelTuning):
    """Fine-tune a pretrained run to tell the relation between the head and the tail of a text.

    CORPUS holds texts with `marks` (head and tail) and the label `relation`, as `prepare text` makes of FewRel, TACRED
    and SemEval-2010 task 8, and of the sets published with ERNIE-THU. The steps that bring in knowledge are those of
    pretraining.

    Examples:

      workbench finetune relations runs/ernie-thu corpora/fewrel-train --epochs 10 --seeds 3

      workbench finetune relations runs/luke corpora/fewrel-train --read entities
    """

    head: Annotated[Name, typer.Option(help="The token on both sides of the head.")] = "#"
    tail: Annotated[Name, typer.Option(help="The token on both sides of the tail.")] = "$"
    read: Annotated[
        Reading,
        typer.Option(help="The pooler; the first row, [CLS], itself; the markers of head and tail; their entities."),
    ] = "pooled"
    negative: Annotated[
        Name | None, typer.Option(help="The class of pairs without a relation: no_relation, NA, Other.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class RelationScoring(ClassifyScoring):
    """Accuracy and macro F1 (FewRel); of a run with a --negative class also the scores without it: micro precision,
    recall and F1 (TACRED), and `relations_macro_f1`, a relation's directions taken together (SemEval-2010 task 8).

    Beside them stand the most frequent relation, what the two mentions tell alone (by their words, by their entities),
    and for a run that reads entity vectors a linear probe on those of the two.

    Examples:

      workbench evaluate relations runs/ernie-thu-relations corpora/fewrel-dev

      workbench evaluate relations runs/ernie-thu-relations corpora/fewrel-dev --control no-kg
    """
