"""What the held-out losses of a recipe are without any knowledge of what is read: the levels that learning must beat.

- labels of a fixed set (tokens, classes, decisions): the cross entropy (nats) of the held-out labels under their
  frequencies in training;
- labels among candidates of the micro-batch (`kg.dea`): the mean logarithm of the number of candidates;
- true triples beside false ones (`kg.knowledge_embedding`): log 2, where both are scored alike.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kg.objectives.knowledge_embedding import KnowledgeEmbedding
from workbench.recipe.spec import Recipe
from workbench.tasks.building import tasks_of
from workbench.tasks.feed import MicroBatches, MicroBatchId
from workbench.tasks.objective import Objective
from workbench.tasks.task import labels as names_of
from workbench.text.tokenizer import Tokenizer
from workbench.training.held_out import HELD_OUT_SPLIT
from workbench.training.readers import held_out_pass, reader_of

BATCHES_COUNTED, IGNORED = 100, -100


@dataclass
class Seen:
    """Labels of an objective and how often each was there; and the sum over labels of log candidates, where these are
    the micro-batch's."""

    labels: Counter[int] = field(default_factory=Counter)
    log_candidates: float = 0.0

    def add(self, targets: Mapping[str, Any]) -> None:
        labels = np.asarray(targets.get("labels", ()))
        if labels.ndim == 1 and np.issubdtype(labels.dtype, np.integer):
            labels = labels[labels != IGNORED]
            self.labels.update(labels.tolist())
            self.log_candidates += len(labels) * math.log(max(len(targets.get("candidates", ())), 1))


def chances(recipe: Recipe) -> dict[str, float]:
    """The level of each objective that has one, by its label in metrics, for tasks with held-out corpora."""
    tokenizer = Tokenizer.load(recipe.tokenizer) if recipe.tokenizer else None
    tasks = tasks_of(recipe, tokenizer)
    readers = {name: reader_of(recipe, task) for name, task in tasks.items()}
    passes = {name: held_out_pass(recipe, task) for name, task in tasks.items() if task.spec.held_out}
    seen = _seen(MicroBatches(tasks, readers), dict.fromkeys(passes, BATCHES_COUNTED))
    asked = _seen(MicroBatches(tasks, passes, HELD_OUT_SPLIT), {name: each.steps for name, each in passes.items()})
    size = tokenizer.vocab_size if tokenizer else 0
    called = names_of(tasks)
    found = {}
    for name in passes:
        for placed in tasks[name].objectives:
            label = called[name, placed.name]
            level = chance(placed.objective, seen[label], asked[label], size)
            found |= {} if level is None else {label: level}
    return found


def chance(objective: Objective, seen: Seen, asked: Seen, vocabulary: int) -> float | None:
    """The level of an objective with the labels `seen` in training, for those it is `asked`; None where it has none."""
    if isinstance(objective, KnowledgeEmbedding):
        return math.log(2)
    if not asked.labels:
        return None
    if asked.log_candidates:
        return asked.log_candidates / asked.labels.total()
    kinds = vocabulary if objective.predicts == "tokens" else len(seen.labels | asked.labels)
    total = seen.labels.total() + kinds  # every label counts once more than it is seen
    nats = sum(count * math.log((seen.labels[label] + 1) / total) for label, count in asked.labels.items())
    return -nats / asked.labels.total()


def _seen(batches: MicroBatches, numbers: Mapping[str, int]) -> dict[str, Seen]:
    """What the objectives of some tasks are asked in so many micro-batches of each."""
    called = names_of(batches.tasks)
    found = {called[name, placed]: Seen() for name in numbers for placed in batches.tasks[name].names}
    for task, steps in numbers.items():
        for number in range(steps):
            micro = batches.micro_batch(MicroBatchId(task, number, 0))
            for view in micro.views.values() if micro else ():
                for objective, targets in view.targets.items():
                    found[called[task, objective]].add(targets)
    return found
