"""The loader alone next to the card alone: can the workers of this machine feed it?

Both read the same recipe: the loader makes and pins micro-batches that nobody uses, the card runs steps on others that
were made before.
"""

from __future__ import annotations

import statistics
import time

from pipelines.gpu.record import CheckRecord, Setting
from pipelines.gpu.steps import SYSTEMS, Stepper, emptied, recipe_of, rows_of, samples_of, timed
from workbench.core.processes.children import loaders
from workbench.pretraining.assembly import tasks_of
from workbench.pretraining.loader import PREFETCH, Feed, MicroBatches, training_places
from workbench.pretraining.schedule import TaskSchedule
from workbench.recipe.spec import Recipe
from workbench.sequences.batch import MicroBatch
from workbench.text.tokenizer import Tokenizer
from workbench.training.data import reader_of

MEASURED = ("bert", "clip")
FEWEST = 4
"""Micro-batches that are timed at least, next to those that the workers had made before."""


def run(setting: Setting, record: CheckRecord) -> None:
    """Texts and photographs."""
    for number, name in enumerate(record.in_time(MEASURED)):
        with record.guarded(name):
            seconds = max(record.left, 1.0) / (len(MEASURED) - number) / 4
            recipe, unit = recipe_of(name, setting), SYSTEMS[name].unit
            step = Stepper(recipe, setting.world)
            count = statistics.mean(units(name, micro) for micro in step.micros)
            card = count / statistics.median(timed(step, seconds))
            del step
            emptied()
            workers = loaders(setting.device)
            loader = alone(name, recipe, setting, seconds)
            line = f"loader {loader:,.0f} {unit}/s with {workers} workers, card {card:,.0f} {unit}/s"
            numbers = {"loader": loader, "card": card, "workers": workers}
            record.check(f"{name}, loader next to the card", loader >= card, line, "loader >= card", **numbers)


def alone(name: str, recipe: Recipe, setting: Setting, seconds: float) -> float:
    """Units that the loader makes in a second, once its workers have begun."""
    tokenizer = None if recipe.tokenizer is None else Tokenizer.load(recipe.tokenizer)
    tasks = tasks_of(recipe, tokenizer)
    batches = MicroBatches(tasks, {task: reader_of(recipe, each) for task, each in tasks.items()})
    schedule = TaskSchedule(recipe.schedule, recipe.tasks, recipe.seed)
    most = recipe.train.max_steps
    places = training_places(schedule, range(most), range(1), most)
    made = loaders(setting.device) * PREFETCH  # waiting when the clock starts
    found = 0.0
    with Feed([batches], num_workers=None, device=setting.device) as feed:
        micros = feed.micro_batches(batches, places)
        for _ in range(made + 1):
            next(micros)
        started, number = time.perf_counter(), 0
        while number < FEWEST or time.perf_counter() - started < seconds:
            found += units(name, next(micros))
            number += 1
        return found / (time.perf_counter() - started)


def units(name: str, micro: MicroBatch | None) -> int:
    """Tokens or images of a micro-batch."""
    if micro is None:
        return 0
    return rows_of(micro) if SYSTEMS[name].unit == "tokens" else samples_of(micro)
