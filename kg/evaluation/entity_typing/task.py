"""Entity typing: the types of a marked mention (Open Entity, FIGER, ultra-fine), multi-label."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from kg.evaluation.entity_typing.baselines import baselines
from kg.evaluation.entity_typing.groups import Groups, GroupScores, by_group, read_groups, refuse_other
from kg.evaluation.entity_typing.inventory import read_inventory
from kg.evaluation.entity_typing.predictions import examples, inventory_of, predict
from kg.evaluation.entity_vectors import linked_at
from kg.metrics.typing import Gold, Macro, Rule, predicted_types, typing_scores
from kg.objectives._reading import Reading, as_option
from kg.objectives.types import Types
from workbench.corpora.corpus import Corpus
from workbench.errors import WorkbenchError
from workbench.evaluation.inherited import text_sequence
from workbench.evaluation.opening import Evaluated
from workbench.evaluation.options import BatchSize, Epochs, LearningRate, Scoring, Tuning
from workbench.evaluation.result import Result
from workbench.evaluation.task import DownstreamTask, Setup
from workbench.metrics.classes import by_class, class_counts, never_predicted
from workbench.options.bounds import Count, Name
from workbench.recipe.spec import Recipe
from workbench.text.tokenizer import Tokenizer

MARKERS = ("。", "@", "#", "*", "|", "/")


@dataclass(frozen=True, kw_only=True)
class TypingTuning(Tuning):
    """Fine-tune a pretrained run to tell the types of a marked mention. The defaults are those of Open Entity.

    CORPUS holds texts with `mention` and `types`. The steps that bring in knowledge (entity stream, sentence tree) are
    those of the run's pretraining; the controls no-kg, shuffled-kg and random-entities take it away.

    Examples:

      workbench finetune entity-typing runs/ernie corpora/ufet --types open-entity --output runs/ernie-typing

      workbench finetune entity-typing runs/ernie corpora/ufet --control random-entities -o runs/ernie-typing-random

      workbench finetune entity-typing runs/luke corpora/ufet --read entities

      workbench finetune entity-typing runs/ernie corpora/ufet --types types.txt --groups types.txt
    """

    epochs: Epochs = 10.0
    batch_size: BatchSize = 16
    lr: LearningRate = 2e-5
    types: Annotated[
        Name | None, typer.Option(help="open-entity, a file, or names with commas; default: all types of CORPUS.")
    ] = None
    groups: Annotated[
        Path | None,
        typer.Option(help="List of all types of ultra-fine entity typing: each of its three groups has its own loss."),
    ] = None
    max_length: Annotated[
        Count | None,
        typer.Option(help="Tokens of the text; default: 128, or fewer where the positions or the steps need it."),
    ] = None
    marker: Annotated[
        Name | None, typer.Option(help="Text around the mention; default: the first of 。 @ # * | / in the vocabulary.")
    ] = None
    read: Annotated[
        Reading,
        typer.Option(help="The pooler; the first row, [CLS], itself; the marker before the mention; its entity token."),
    ] = "pooled"


@dataclass(frozen=True, kw_only=True)
class TypingScoring(Scoring):
    """Strict accuracy, loose macro and loose micro scores of a typing run.

    CORPUS holds texts with `mention` and `types`.

    Examples:

      workbench evaluate entity-typing runs/ernie-typing corpora/ufet-dev --macro ernie

      workbench evaluate entity-typing runs/ernie-typing corpora/ufet-dev --control random-entities

      workbench evaluate entity-typing runs/ultra-fine corpora/ufet-dev --rule positive_or_top --groups types.txt
    """

    rule: Annotated[
        Rule, typer.Option(help="positive: logit > 0 (Open Entity); positive_or_top: at least one type (FIGER).")
    ] = "positive"
    macro: Annotated[Macro, typer.Option(help="Macro average: open_type (the data set's), ernie.")] = "open_type"
    gold: Annotated[
        Gold, typer.Option(help="Gold types to be found: all, or those of the run's inventory (Open Entity's nine).")
    ] = "all"
    groups: Annotated[
        Path | None,
        typer.Option(help="List of all types of ultra-fine entity typing: macro scores of its three groups, too."),
    ] = None
    probe: Annotated[bool, typer.Option(help="Beside an entity stream: a linear probe on its vectors alone.")] = True


class EntityTyping(DownstreamTask[TypingTuning, TypingScoring]):
    """Multi-label classification of marked mentions, beside a linear probe where the run has an entity stream."""

    tuning = TypingTuning
    scoring = TypingScoring
    objective = Types
    panels = ("kg.evaluation.entity_typing.panel:types",)

    def setup(self, tuning: TypingTuning, base: Recipe) -> Setup:
        inventory = read_inventory(tuning.types, Corpus.open(tuning.corpus))
        sizes: list[int] | None = None
        if tuning.groups is not None:
            inventory, sizes = by_group(inventory, read_groups(tuning.groups))
        marker = tuning.marker or _known_marker(base, tuning.run)
        return Setup(
            text_sequence(
                *(base, "mention", tuning.max_length), marks=tuning.read == "entities", marker=marker, types=inventory
            ),
            {"objective": "kg.types", "num_types": len(inventory), "groups": sizes, **as_option(tuning.read)},
            poolers=("text",) if tuning.read == "pooled" else (),
        )

    def score(self, run: Evaluated, corpus: Corpus, scoring: TypingScoring) -> Result:
        names = inventory_of(run)
        groups: Groups = {}
        if scoring.groups is not None:
            groups, objective = read_groups(scoring.groups), run.objective.objective
            assert isinstance(objective, Types)
            refuse_other(groups, names, objective.groups, scoring.groups, run.folder)
        found = predict(run, corpus, scoring.batch_size, scoring.limit)
        chosen = predicted_types(found.logits, scoring.rule)
        missed = found.outside if scoring.gold == "all" else None
        of_groups = GroupScores(groups, names, found, scoring.macro, scoring.gold)

        def numbers_of(predicted: np.ndarray) -> dict[str, float]:
            scores = typing_scores(predicted, found.gold, scoring.macro, missed)
            return {**scores.numbers(), **of_groups.numbers(predicted)}

        classes = by_class(class_counts(chosen, found.gold, names))
        return Result(
            task=self.name,
            numbers=numbers_of(chosen),
            counts={
                "mentions": len(found.samples),
                "without prediction": int((~chosen.any(1)).sum()),
                "linked mentions": sum(bool(linked_at(sample, sample["mention"])) for sample in found.samples),
                "types": len(names),
                "gold types never predicted": never_predicted(classes),
                "gold types outside the inventory": int(found.outside.sum()),
            },
            variant=f"rule {scoring.rule}, macro {scoring.macro}, gold {scoring.gold}",
            baselines=baselines(run, found, numbers_of, scoring.rule, scoring.probe),
            classes=classes,
            examples=examples(found, chosen, names),
        )


def _known_marker(base: Recipe, run: Path) -> str:
    """The first usual marker that is a token of the run's vocabulary."""
    if base.tokenizer is None:
        raise WorkbenchError(f"{run} has no tokenizer; entity typing needs a run on text")
    tokenizer = Tokenizer.load(base.tokenizer)
    for marker in MARKERS:
        ids = tokenizer.encode(marker).ids
        if len(ids) == 1 and not (tokenizer.has("unk") and ids[0] == tokenizer.id("unk")):
            return marker
    raise WorkbenchError(f"none of {' '.join(MARKERS)} is in the vocabulary of {run}; choose a token with --marker")
