"""Relation classification between two marked mentions of a text: accuracy, macro F1, TACRED's scores.

Data sets are FewRel, TACRED and SemEval-2010 task 8.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from kg.evaluation.contamination import stated_facts
from kg.evaluation.relation_baselines import by_mentions, by_vectors, entity_of, mention_of, words_of
from kg.evaluation.task_options import RelationPredicting, RelationScoring, RelationTuning
from kg.objectives._reading import as_option
from kg.objectives.relations import ROLES, Relations
from workbench.evaluation.finetuning.inheritance import text_sequence
from workbench.evaluation.finetuning.labels import labelled
from workbench.evaluation.scoring.asked import place_of
from workbench.evaluation.scoring.downstream_task import Setup
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun
from workbench.evaluation.scoring.objective_task import GatheredTensors
from workbench.evaluation.task_options import ClassifyScoring, LabelTuning
from workbench.evaluation.tasks.classify import Classification, class_objective
from workbench.objectives.classify import Classify
from workbench.recipe.spec import Recipe
from workbench.sequences.sequence import Sample


class RelationClassification(Classification):
    """One relation for a text with two marked mentions."""

    tuning = RelationTuning
    scoring = RelationScoring
    predicting = RelationPredicting
    objective = Relations
    panels = ("kg.evaluation.task_panels:related",)

    def setup(self, tuning: LabelTuning, base: Recipe) -> Setup:
        assert isinstance(tuning, RelationTuning)
        marks = tuning.read == "entities"
        sequence = text_sequence(
            *(base, "kg.marked_pair", tuning.max_length), marks=marks, head=tuning.head, tail=tuning.tail
        )
        objective = {**class_objective(tuning), "objective": "kg.relations"}
        objective |= {"negative": tuning.negative, **as_option(tuning.read)}
        return Setup(sequence, objective, poolers=("text",) if tuning.read == "pooled" else ())

    def asked(self, run: EvaluatedRun, sample: Sample, predicting: RelationPredicting) -> Sample:
        own = {name: (start, end) for start, end, name in sample.get("marks", ())}
        given = {"head": predicting.head, "tail": predicting.tail}
        places = [[*place_of({**sample, **own}, role, given[role]), role] for role in ROLES]
        return super().asked(run, {**sample, "marks": places}, predicting)

    def counts(self, objective: Classify, made: GatheredTensors, samples: Iterable[Sample]) -> dict[str, int]:
        """Next to the texts, how many of their mentions are linked."""
        found = [[bool(mention_of(sample, role)[0]) for role in ROLES] for sample in samples]
        linked = {"linked mentions": sum(map(sum, found)), "texts with both linked": sum(map(all, found))}
        return super().counts(objective, made, samples) | linked

    def known_before(self, run: EvaluatedRun, made: GatheredTensors, samples: Iterable[Sample]) -> dict[str, int]:
        """The facts that the run's graph states, and the pairs that it joins."""
        return stated_facts(run.loaded.data_identities, samples)

    def baselines(
        self, run: EvaluatedRun, objective: Classify, made: GatheredTensors, samples: Iterable[Sample]
    ) -> dict[str, GatheredTensors]:
        """The most frequent relation, and predictions from the two mentions without the text around them."""
        trained = run.trained_on()
        if trained is None:
            return {}
        known, gold = labelled(trained, objective.label, objective.classes)
        tested, _ = labelled(list(samples), objective.label, objective.rows)
        arguments = known, gold, tested, len(objective.classes)
        guesses = {
            "the mentions' words alone": by_mentions(*arguments, words_of),
            "the linked entities alone": by_mentions(*arguments, entity_of),
            "linear probe on both vectors": by_vectors(run, *arguments),
        }
        own = {name: {**made, "predicted": torch.from_numpy(g)} for name, g in guesses.items() if g is not None}
        return super().baselines(run, objective, made, samples) | own

    def variant(self, objective: Classify, scoring: ClassifyScoring) -> str:
        assert isinstance(objective, Relations)
        excluded = f", without {objective.negative}" if objective.negative else ""
        return f"{super().variant(objective, scoring)}{excluded}"

    def example(self, objective: Classify, sample: Sample, made: GatheredTensors) -> dict[str, Any]:
        return {**super().example(objective, sample, made), "marks": sample["marks"]}
