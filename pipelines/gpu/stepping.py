"""Micro-batches of a recipe, and the plain training step of a peer on them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from workbench.pretraining.assembly import tasks_of
from workbench.pretraining.loader import MicroBatches, MicroBatchId
from workbench.pretraining.task import Task
from workbench.recipe.spec import Recipe
from workbench.sequences.batch import MicroBatch
from workbench.sequences.sequence import row_count
from workbench.text.tokenizer import Tokenizer
from workbench.training.data import reader_of

BATCHES = 8
GROUP = 50
"""Micro-batches whose sequences are sorted together: what Hugging Face's sampler calls a mega-batch."""
Step = Callable[[int], None]


def micro_batches(
    recipe: Recipe, tokenizer: Tokenizer | None, count: int = BATCHES, lane: int = 0, *, by_length: bool = False
) -> list[tuple[str, MicroBatch]]:
    """The first micro-batches of a lane, each with its task; of several tasks in turn. `by_length`: `grouped`."""
    tasks = tasks_of(recipe, tokenizer)
    batches = MicroBatches(tasks, {name: reader_of(recipe, task) for name, task in tasks.items()})
    if by_length:
        for each in tasks.values():
            group(each, batches, -(-count // len(tasks)))
    found = []
    for number in range(count):
        task = list(tasks)[number % len(tasks)]
        micro = batches.micro_batch(MicroBatchId(task, number // len(tasks), lane))
        assert micro is not None
        found.append((task, micro))
    return found


def group(task: Task, batches: MicroBatches, count: int) -> None:
    """Let a task put `count` of the sorted micro-batches in the place of its first ones."""
    build = task.sequences
    pool: dict[Any, list[Any]] = {}

    def recorded(samples: Any, number: Any, progress: float) -> Any:
        built = build(samples, number, progress)
        pool[number] = [sequence.copy() for sequence in built]
        return built

    task.sequences = recorded  # type: ignore[method-assign, assignment]
    for number in range(GROUP):
        batches.micro_batch(MicroBatchId(task.name, number, 0))
    by_length = sorted(itertools.chain(*pool.values()), key=lambda one: sum(map(row_count, one.streams.values())))
    size = len(by_length) // GROUP
    starts = [(2 * i + 1) * GROUP // (2 * count) * size for i in range(count)]

    def of_length(_: Any, number: Any, __: float) -> Any:
        return [sequence.copy() for sequence in by_length[starts[number[1]] :][:size]]

    task.sequences = of_length  # type: ignore[method-assign, assignment]


def stepping(module: nn.Module, loss: Callable[[int], torch.Tensor]) -> Step:
    """A training step of a module on the micro-batch of a number."""
    optimizer = torch.optim.AdamW(module.parameters(), 1e-4, fused=True)

    def step(number: int) -> None:
        optimizer.zero_grad()
        loss(number).backward()
        nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()

    return step
