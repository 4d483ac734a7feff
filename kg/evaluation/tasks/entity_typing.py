"""Entity typing of a marked mention, multi-label: strict, loose macro and loose micro scores.

Data sets are Open Entity, FIGER and ultra-fine entity typing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from kg.evaluation.contamination import stated_types
from kg.evaluation.entity_vectors import linked_at
from kg.evaluation.task_options import TypingPredicting, TypingScoring, TypingTuning
from kg.evaluation.typing.type_groups import Groups, GroupScores, by_group, read_groups, refuse_other
from kg.evaluation.typing.type_inventory import read_inventory
from kg.evaluation.typing.type_predictions import examples, inventory_of, lines_of, predict
from kg.evaluation.typing.typing_baselines import baselines
from kg.metrics.typing_scores import predicted_types, typing_scores, typing_tallies
from kg.objectives._reading import as_option
from kg.objectives.types import Types
from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus
from workbench.evaluation.finetuning.inheritance import text_sequence
from workbench.evaluation.scoring.asked import place_of
from workbench.evaluation.scoring.downstream_task import DownstreamTask, Setup
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun
from workbench.evaluation.scoring.evaluation_items import EvaluationItems
from workbench.evaluation.scoring.objective_task import injected_knowledge, measured_group
from workbench.evaluation.scoring.result import Result
from workbench.metrics.classes import by_class, class_counts, never_predicted
from workbench.recipe.spec import Recipe
from workbench.sequences.sequence import Sample
from workbench.text.tokenizer import Tokenizer

MARKERS = ("。", "@", "#", "*", "|", "/")


class EntityTyping(DownstreamTask[TypingTuning, TypingScoring]):
    """Multi-label classification of marked mentions, next to a linear probe where the run has an entity stream."""

    tuning = TypingTuning
    scoring = TypingScoring
    predicting = TypingPredicting
    objective = Types
    panels = ("kg.evaluation.task_panels:types",)

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

    def score(self, run: EvaluatedRun, corpus: Corpus, scoring: TypingScoring) -> Result:
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
                **stated_types(run.loaded.data_identities, found.samples),
                "types": len(names),
                "gold types never predicted": never_predicted(classes),
                "gold types outside the inventory": int(found.outside.sum()),
            },
            variant=f"rule {scoring.rule}, macro {scoring.macro}, gold {scoring.gold}",
            baselines=baselines(run, found, numbers_of, scoring.rule, scoring.probe),
            classes=classes,
            examples=examples(found, chosen, names),
            predictions=EvaluationItems(
                lines_of(found, chosen, names), typing_tallies(chosen, found.gold, scoring.macro, missed)
            ),
        )

    def asked(self, run: EvaluatedRun, sample: Sample, predicting: TypingPredicting) -> Sample:
        return {**sample, "mention": place_of(sample, "mention", predicting.mention), "types": []}

    def predict(
        self, run: EvaluatedRun, samples: list[Sample], number: int, predicting: TypingPredicting
    ) -> list[dict[str, Any]]:
        """The types of each mention, with the probability of every type."""
        names, found = inventory_of(run), measured_group(run, samples, number, lambda targets: 1)
        if not found.keys:
            return []
        logits, injected = found.made["logits"], injected_knowledge(run.task, found.sequences)
        rows = zip(found.keys, predicted_types(logits.numpy(), predicting.rule), logits.sigmoid().tolist(), strict=True)
        return [
            {"key": key, "prediction": [names[i] for i in np.flatnonzero(chosen)]}
            | {"probabilities": dict(zip(names, shares, strict=True))}
            | injected.get(key, {})
            for key, chosen, shares in rows
        ]


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
