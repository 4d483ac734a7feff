"""The data of a recipe: the stream of a task, its held-out pass, its first micro-batch."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from workbench.core.keyed import digest
from workbench.core.processes.distributed import World
from workbench.corpora.corpus import Corpus
from workbench.corpora.reading.order import NEWEST, OrderNumber
from workbench.corpora.reading.reader import FinitePass, Reader
from workbench.pretraining.assembly import tasks_of
from workbench.pretraining.loader import MicroBatches, training_places
from workbench.pretraining.schedule import TaskSchedule
from workbench.pretraining.segmentation import cut_by
from workbench.pretraining.task import Task
from workbench.pretraining.task_corpora import as_corpora_say
from workbench.pretraining.window_lengths import window_of
from workbench.recipe.spec import Recipe
from workbench.sequences.batch import MicroBatch
from workbench.text.tokenizer import Tokenizer

logger = logging.getLogger(__name__)
TRAINING = 0  # the split in the key of a training micro-batch


def reader_of(
    recipe: Recipe, task: Task, *, logs: bool = True, order_number: OrderNumber = NEWEST, world: World | None = None
) -> Reader:
    """The endless stream of a task's corpora.

    Args:
        logs: whether the length of text windows is logged.
        order_number, world: see `Reader`.
    """
    verify = recipe.train.verify
    corpora = [Corpus.open(place, verify=verify) for place in task.spec.corpora]
    weights = weights_of(task, corpora)
    window = window_of(task, corpora, weights)
    if window is not None and logs:
        logger.info("tasks.%s: windows of at most %s characters", task.name, f"{window:,}")
    return Reader(
        list(zip(corpora, weights, strict=True)),
        seed=digest(recipe.seed, task.name, "order") % 2**31,
        lanes=recipe.train.lanes,
        micro_batch_size=recipe.train.samples,
        unit=task.builder.unit,
        window=window,
        order=task.spec.order,
        order_number=order_number,
        by_item=task.spec.duplicates is not None,
        on_error=recipe.train.on_error,
        skip_limit=recipe.train.skip_limit,
        world=world,
    )


def weights_of(task: Task, corpora: Sequence[Corpus]) -> list[float]:
    """The proportions in which a task reads its corpora: their weights, each times size ** `size_exponent`."""
    unit, power = task.builder.unit, task.spec.size_exponent
    manifests = [corpus.manifest for corpus in corpora]
    sizes = [each.records if unit is None else each.lengths.get(unit, 0) for each in manifests]
    return [weight * size**power for weight, size in zip(task.spec.corpora.values(), sizes, strict=True)]


def held_out_pass(recipe: Recipe, task: Task, world: World | None = None) -> FinitePass:
    """One pass over a task's held-out corpora: at most `train.evaluate_steps` micro-batches of every lane."""
    corpora = [Corpus.open(place, verify=recipe.train.verify) for place in task.spec.held_out]
    passed = Reader.finite(
        corpora,
        lanes=recipe.train.lanes,
        micro_batch_size=recipe.train.samples,
        unit=task.builder.unit,
        window=window_of(task, corpora),
        order=task.spec.order,
        on_error=recipe.train.on_error,
        skip_limit=recipe.train.skip_limit,
        max_steps=recipe.train.evaluate_steps,
        world=world,
    )
    bound = f" (train.evaluate_steps: {recipe.train.evaluate_steps})" if passed.read < passed.total else ""
    read = f"{passed.read:,} of {passed.total:,} items{bound}"
    logger.info("tasks.%s: held-out losses read %s", task.name, read)
    return passed


class First(NamedTuple):
    """The first micro-batch of each task of a recipe."""

    tokenizer: Tokenizer | None
    tasks: dict[str, Task]
    batches: dict[str, MicroBatch]


def first_batches(recipe: Recipe) -> First:
    """The first micro-batch of each task as the model would see it; nothing is written."""
    recipe = as_corpora_say(recipe)
    tokenizer, tasks = _tasks(recipe)
    batches = {}
    for name, task in tasks.items():
        samples = reader_of(recipe, task).micro_batch(0, 0)
        batches[name] = task.micro_batch(samples, (TRAINING, 0, 0), progress=0.0)
    return First(tokenizer, tasks, batches)


def training_batches(recipe: Recipe) -> Iterator[MicroBatch]:
    """Every micro-batch that a training of a recipe reads, step by step and lane by lane, made in this process."""
    recipe = as_corpora_say(recipe)
    tasks, train = _tasks(recipe)[1], recipe.train
    batches = MicroBatches(tasks, {name: reader_of(recipe, task, logs=False) for name, task in tasks.items()})
    schedule = TaskSchedule(recipe.schedule, recipe.tasks, recipe.seed)
    for place in training_places(schedule, range(train.max_steps), range(train.lanes), train.max_steps):
        micro = batches.micro_batch(place)
        if micro is not None:
            yield micro


def _tasks(recipe: Recipe) -> tuple[Tokenizer | None, dict[str, Task]]:
    """The tokenizer that a recipe names, and its tasks."""
    tokenizer = None if recipe.tokenizer is None else cut_by(recipe, Tokenizer.load(recipe.tokenizer))
    return tokenizer, tasks_of(recipe, tokenizer)
