"""Whether a run has learned its labels: its last training losses next to the loss of one constant prediction."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from workbench.components.building import find
from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus
from workbench.pretraining.task import objective_name
from workbench.recipe.spec import Recipe, TaskSpec
from workbench.runs.metrics_file import read_metrics
from workbench.sequences.sequence import Sample

LEARNED = 0.95
"""A loss below this share of a constant's counts as learned."""
RECORDS = 20_000
"""Records of the training set from which the constant's loss is computed."""


def unlearned(run: Path, recipe: Recipe, only: str | None = None) -> list[str]:
    """A sentence for each objective, or for the one named `only`, whose mean loss over the last quarter of the logged
    steps is within 5 % of the loss of the best constant prediction (`Objective.constant_loss`)."""
    logged = [record for record in read_metrics(run) if "lr" in record]
    found, tuned = [], recipe.name.endswith(f"-{''.join(recipe.tasks)}")  # as `finetune` names its recipes
    advice = "--epochs or --lr" if tuned else "train.max_steps or train.lr"
    for task in recipe.tasks.values():
        for spec in task.objectives:
            name = objective_name(spec)
            if only not in (None, name):
                continue
            key = f"{name}/loss"
            losses = [float(record[key]) for record in logged if key in record]
            if not losses:
                continue
            constant = find("objective", spec["objective"]).constant_loss(spec, _records(task))
            last = statistics.fmean(losses[-max(1, len(losses) // 4) :])
            if constant is not None and last > LEARNED * constant:
                found.append(
                    f"{key} ended at {last:.3f}, and the best constant prediction has {constant:.3f}: the training has "
                    f"hardly learned the labels. Raise {advice}"
                )
    return found


def _records(task: TaskSpec) -> Iterator[Sample]:
    """The first records of the task's corpora; none of those that are gone."""
    try:
        yield from islice((sample for place in task.corpora for sample in Corpus.open(place)), RECORDS)
    except WorkbenchError:
        return
