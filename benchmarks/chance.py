"""What the held-out losses of a recipe are without any knowledge of what is read: the levels that learning must beat.

- labels of a fixed set (tokens, classes, decisions): the cross entropy (nats) of the held-out labels under their
  frequencies in training;
- labels among candidates of the micro-batch (`kg.dea`), or of a mention (`kg.entity_linking`, likelihood): the mean
  logarithm of the number of candidates; the margin's loss where all candidates have the same score, the best one;
- any of several labels (`kg.supersense`): its loss where each supersense has its share of the words in training;
- true triples beside false ones (`kg.knowledge_embedding`): log 2, where both are scored alike.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kg.objectives.entity_linking import EntityLinking
from kg.objectives.knowledge_embedding import KnowledgeEmbedding
from kg.objectives.supersense import Supersense
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
    """Labels of an objective and how often each was there, also those beside them (`kg.word_knowledge`); and the sum
    over labels of log candidates: the micro-batch's, or a mention's."""

    labels: Counter[int] = field(default_factory=Counter)
    polarities: Counter[int] = field(default_factory=Counter)
    log_candidates: float = 0.0

    def add(self, targets: Mapping[str, Any], by_mention: bool = False) -> None:
        labels = np.asarray(targets.get("labels", ()))
        if labels.ndim == 1 and np.issubdtype(labels.dtype, np.integer):
            labels = labels[labels != IGNORED]
            self.labels.update(labels.tolist())
            self.polarities.update(np.asarray(targets.get("polarities", ())).tolist())
            candidates = targets.get("candidates", ())
            if by_mention:
                mentions = np.repeat(np.arange(len(candidates)), candidates)
                self.log_candidates += float(np.log(candidates)[mentions[labels > 0]].sum())
            else:
                self.log_candidates += len(labels) * math.log(max(len(candidates), 1))


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
    if isinstance(objective, EntityLinking):
        return _linking(objective, asked)
    if isinstance(objective, Supersense):
        return _supersenses(objective.senses.allowed, seen.labels, asked.labels)
    if asked.log_candidates:
        return asked.log_candidates / asked.labels.total()
    kinds = vocabulary if objective.predicts == "tokens" else 0
    level = _entropy(seen.labels, asked.labels, kinds)
    return level + _entropy(seen.polarities, asked.polarities) if asked.polarities else level


def _entropy(seen: Counter[int], asked: Counter[int], kinds: int = 0) -> float:
    """The cross entropy of labels under the frequencies of those seen, each of the `kinds` (by default, of all that are
    there) once more."""
    total = seen.total() + (kinds or len(seen | asked))
    return -sum(count * math.log((seen[label] + 1) / total) for label, count in asked.items()) / asked.total()


def _linking(objective: EntityLinking, asked: Seen) -> float | None:
    right = asked.labels[1]
    if objective.loss == "likelihood":
        return asked.log_candidates / right if right else None
    total = asked.labels.total()
    return 2 * objective.margin * min(right, total - right) / total  # all at -margin, or all at margin


def _supersenses(allowed: np.ndarray, seen: Counter[int], asked: Counter[int]) -> float:
    """The loss of `kg.supersense` at the shares of supersenses in training; `allowed` is bool [words, supersenses]."""
    allowed = np.asarray(allowed, float)
    shares = np.ones(allowed.shape[1])
    for word, count in seen.items():
        shares += count * allowed[word] / allowed[word].sum()
    shares /= shares.sum()
    nats = sum(
        count * (math.log(allowed[word] @ shares) + allowed[word] @ np.log(shares) / allowed[word].sum())
        for word, count in asked.items()
    )
    return -float(nats) / asked.total()


def _seen(batches: MicroBatches, numbers: Mapping[str, int]) -> dict[str, Seen]:
    """What the objectives of some tasks are asked in so many micro-batches of each."""
    called = names_of(batches.tasks)
    placed = {called[name, each.name]: each.objective for name in numbers for each in batches.tasks[name].objectives}
    found = {label: Seen() for label in placed}
    for task, steps in numbers.items():
        for number in range(steps):
            micro = batches.micro_batch(MicroBatchId(task, number, 0))
            for view in micro.views.values() if micro else ():
                for objective, targets in view.targets.items():
                    label = called[task, objective]
                    found[label].add(targets, by_mention=isinstance(placed[label], EntityLinking))
    return found
