"""What the held-out losses of a recipe are without any knowledge of what is read: the levels that learning must beat.

- labels of a fixed set (tokens, classes, decisions): the cross entropy (nats) of the held-out labels under their
  frequencies in training, each smoothed by the count of `SMOOTHING` that suits them best;
- labels among candidates of the micro-batch (`kg.dea`), or of a mention (`kg.entity_linking`, likelihood): the mean
  logarithm of the number of candidates; the margin's loss where all candidates have the same score, the best one;
- any of several labels (`kg.supersense`): its loss where each supersense has its share of the words in training;
- true triples next to false ones (`kg.knowledge_embedding`): log 2, where both are scored alike; words next to drawn
  ones (`neighbours`): log 2 for each of them;
- contrasts and choices among pairs or clips (`vision.itc`, `momentum_contrast`, `pair_contrast`, `mil_nce`,
  `masked_clips`): all that is compared has the same score, and a queue is full;
- features of hidden image rows (`vision.mrfr`) and distributions over their classes (`vision.mrc_kl`): the mean of
  those in training.

What is compared with the network's own vectors (`vision.wra`, `segment_autoencoder`), and counts (`cooccurrence`), have
no such level.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.vision_chance import CONTRASTS, decisions, diverging, regressed, undecided
from kg.objectives.entity_linking import EntityLinking
from kg.objectives.knowledge_embedding import KnowledgeEmbedding
from kg.objectives.supersense import Supersense
from vision.objectives.hard_itm import HardItm
from vision.objectives.mrc_kl import MrcKl
from vision.objectives.mrfr import Mrfr
from vision.objectives.wra import Wra
from workbench.objectives.cooccurrence import Cooccurrence
from workbench.objectives.neighbours import Neighbours
from workbench.objectives.segment_autoencoder import SegmentAutoencoder
from workbench.pretraining.assembly import tasks_of
from workbench.pretraining.loader import MicroBatches, MicroBatchId
from workbench.pretraining.objective import Objective
from workbench.pretraining.task import labels as names_of
from workbench.recipe.spec import Recipe
from workbench.sequences.batch import Batch
from workbench.text.tokenizer import Tokenizer
from workbench.training.data import held_out_pass, reader_of
from workbench.training.held_out import HELD_OUT_SPLIT

BATCHES_COUNTED, IGNORED = 300, -100
SMOOTHING = (1.0, 0.3, 0.1, 0.03)
"""What is added to each label's count; with 1 alone rare words of a large vocabulary would make chance look worse."""
WITHOUT = (Wra, SegmentAutoencoder, Cooccurrence)
ROWS: dict[type[Objective], str] = {Mrfr: "features", MrcKl: "scores"}
"""Objectives without a level of chance; those that predict rows of numbers, and which of their targets these are."""


@dataclass
class LabelCounts:
    """Labels of an objective and how often each was there, also those next to them (`kg.word_knowledge`), and by their
    weights; the sum over labels of log candidates: the micro-batch's, or a mention's; losses of contrasts where all
    candidates are alike; rows [n, size] that are predicted."""

    labels: Counter[int] = field(default_factory=Counter)
    polarities: Counter[int] = field(default_factory=Counter)
    weights: Counter[int] = field(default_factory=Counter)
    log_candidates: float = 0.0
    undecided: list[float] = field(default_factory=list)
    rows: list[np.ndarray] = field(default_factory=list)

    def add(self, targets: Mapping[str, Any], by_mention: bool = False) -> None:
        labels = np.asarray(targets.get("labels", ()))
        if labels.ndim == 1 and np.issubdtype(labels.dtype, np.integer):
            labels = labels[labels != IGNORED]
            self.labels.update(labels.tolist())
            self.polarities.update(np.asarray(targets.get("polarities", ())).tolist())
            for label, weight in zip(labels.tolist(), np.asarray(targets.get("weights", ())).tolist(), strict=False):
                self.weights[label] += weight
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
    lanes = recipe.train.lanes
    seen = _seen(MicroBatches(tasks, readers), dict.fromkeys(passes, BATCHES_COUNTED), lanes)
    steps = {name: each.steps for name, each in passes.items()}
    asked = _seen(MicroBatches(tasks, passes, HELD_OUT_SPLIT), steps, lanes)
    size = tokenizer.vocab_size if tokenizer else 0
    called = names_of(tasks)
    found: dict[str, float] = {}
    for name in passes:
        for placed in tasks[name].objectives:
            label = called[name, placed.name]
            level = chance(placed.objective, seen[label], asked[label], size)
            found |= {} if level is None else {label: level}
    return found


def chance(objective: Objective, seen: LabelCounts, asked: LabelCounts, vocabulary: int) -> float | None:
    """The level of an objective with the labels `seen` in training, for those it is `asked`; None where it has none."""
    if isinstance(objective, KnowledgeEmbedding):
        return math.log(2)
    if isinstance(objective, Neighbours):
        return (1 + objective.negatives) * math.log(2)
    if asked.undecided:
        return float(np.mean(asked.undecided))
    if asked.rows:
        level = regressed(objective, seen.rows, asked.rows) if isinstance(objective, Mrfr) else None
        return diverging(seen.rows, asked.rows) if isinstance(objective, MrcKl) else level
    if not asked.labels or isinstance(objective, WITHOUT):
        return None
    if isinstance(objective, EntityLinking):
        return _linking(objective, asked)
    if isinstance(objective, Supersense):
        return _supersenses(objective.senses.allowed, seen.labels, asked.labels)
    if asked.log_candidates:
        return asked.log_candidates / asked.labels.total()
    kinds = vocabulary if objective.predicts == "tokens" else 0
    level = _entropy(seen.labels, asked.labels, kinds, asked.weights)
    return level + _entropy(seen.polarities, asked.polarities) if asked.polarities else level


def _entropy(
    seen: Counter[int], asked: Counter[int], kinds: int = 0, weights: Mapping[int, float] | None = None
) -> float:
    """The cross entropy of labels under the frequencies of those seen, smoothed over the `kinds` (by default, all that
    are there); of labels with weights the sum of these counts next to their number."""
    kinds = kinds or len(seen | asked)

    def smoothed(more: float) -> float:
        total = seen.total() + more * kinds
        counted = (weights or asked).items()
        return -sum(n * math.log((seen[label] + more) / total) for label, n in counted) / asked.total()

    return min(map(smoothed, SMOOTHING))


def _linking(objective: EntityLinking, asked: LabelCounts) -> float | None:
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


def _seen(batches: MicroBatches, numbers: Mapping[str, int], lanes: int) -> dict[str, LabelCounts]:
    """What the objectives of some tasks are asked in so many steps of each."""
    called = names_of(batches.tasks)
    found = {called[name, each.name]: LabelCounts() for name in numbers for each in batches.tasks[name].objectives}
    for task, steps in numbers.items():
        for number in range(steps):
            micros = [batches.micro_batch(MicroBatchId(task, number, lane)) for lane in range(lanes)]
            views = [view for micro in micros if micro for view in micro.views.values()]
            for placed in batches.tasks[task].objectives:
                asking = [view for view in views if placed.objective.name in view.targets]
                _add(found[called[task, placed.name]], placed.objective, asking)
    return found


def _add(seen: LabelCounts, objective: Objective, views: Sequence[Batch]) -> None:
    """What an objective is asked in the micro-batches of a step."""
    if isinstance(objective, CONTRASTS) and views:
        together = [views] if objective.global_batch else [[view] for view in views]
        seen.undecided.extend(level for batches in together for level in undecided(objective, batches))
        return
    for targets in (view.targets[objective.name] for view in views):
        rows = next((targets.get(field) for kind, field in ROWS.items() if isinstance(objective, kind)), None)
        if rows is not None:
            seen.rows.append(np.asarray(rows))
        elif isinstance(objective, HardItm):
            seen.labels.update(decisions(targets))
        else:
            seen.add(targets, by_mention=isinstance(objective, EntityLinking))
