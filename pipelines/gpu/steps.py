"""Base-size steps: a shipped recipe on random documents or photographs, its micro-batches made and pinned."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from pipelines.gpu.clock import clock_of
from pipelines.gpu.record import Setting, Size
from pipelines.gpu.stepping import micro_batches
from workbench.core.processes.distributed import World
from workbench.models.attention.call import use_kernel
from workbench.optimization.factory import make_optimizer
from workbench.pretraining.assembly import make_model, tasks_of
from workbench.pretraining.loader import MicroBatches
from workbench.pretraining.memory import Memory
from workbench.pretraining.model import PretrainingModel
from workbench.pretraining.task_corpora import as_corpora_say
from workbench.recipe.reading import load_recipe
from workbench.recipe.spec import Recipe
from workbench.sequences.batch import MicroBatch
from workbench.text.tokenizer import Tokenizer
from workbench.training.data import reader_of
from workbench.training.metrics import flops_per_row
from workbench.training.modes import set_training
from workbench.training.parallel import Work, built, parallel_of
from workbench.training.step import StepResult, Updater

BATCHES, WARM_UP, ROUND, ROUNDS = 8, 3, 5, 3
SMALL_CARD = 40 * 2**30
"""Bytes below which a card gets a quarter of the micro-batch."""


@dataclass(frozen=True)
class System:
    """A system that is measured at its base size: the unit that is counted, its micro-batch, its paper's vocabulary."""

    unit: str
    micro: int
    vocabulary: int


SYSTEMS = {
    "bert": System("tokens", 64, 30522),
    "gpt-2": System("tokens", 16, 50257),
    "modernbert": System("tokens", 32, 50368),
    "clip": System("images", 256, 49408),
}
TINY_MICRO = 8


def micro_batch_size(name: str, setting: Setting) -> int:
    """The system's micro-batch on this card."""
    if setting.size == "tiny":
        return TINY_MICRO
    small = torch.cuda.get_device_properties(setting.device).total_memory < SMALL_CARD
    return SYSTEMS[name].micro // (4 if small else 1)


def recipe_of(name: str, setting: Setting, lanes: int = 1, **train: Any) -> Recipe:
    """The system on the random corpora, of its paper's vocabulary.

    Args:
        train: options of `train` that differ from the recipe's.
    """
    micro = micro_batch_size(name, setting)
    changes = [
        f"vars.data={setting.random}",
        f"model.streams.text.vocab_size={SYSTEMS[name].vocabulary}",
        f"train.global_batch_size={micro * lanes}",
        f"train.micro_batch_size={micro}",
    ]
    recipe = as_corpora_say(load_recipe(sized(name, setting.size), changes))
    return replace(recipe, train=replace(recipe.train, **train))


def sized(name: str, size: Size) -> str:
    """The name of a recipe in this size."""
    return name if size == "base" else f"{name}-tiny"


class Stepper:
    """The product's own step of a recipe, as the trainer makes it, on micro-batches that are made beforehand.

    A micro-batch is copied to the card in the step, from pinned memory.

    Args:
        world: this rank among all; its lanes are those of the trainer.
        batches: micro-batches of a lane; after them the first comes again.
    """

    def __init__(self, recipe: Recipe, world: World, batches: int = BATCHES) -> None:
        self.recipe, self.world, self.number = recipe, world, 0
        tokenizer = None if recipe.tokenizer is None else Tokenizer.load(recipe.tokenizer)
        self.tasks = tasks_of(recipe, tokenizer)
        lanes = world.lanes(recipe.train.lanes)
        made = [
            [Work(task, lane, pinned(micro, world.device)) for task, micro in found]
            for lane in lanes
            for found in [micro_batches(recipe, tokenizer, batches, lane)]
        ]
        self.work = [list(step) for step in zip(*made, strict=True)]
        self.root: PretrainingModel = built(lambda: make_model(recipe, self.tasks, tokenizer), recipe.train, world)
        parallel = parallel_of(self.root, recipe.train, world)
        parallel.begin(MicroBatches(self.tasks, {name: reader_of(recipe, task) for name, task in self.tasks.items()}))
        set_training(self.root)
        self.root.progress = 0.0
        self.root.remembered = Memory()
        optimizer = make_optimizer(self.root, recipe.train)
        weights = dict.fromkeys(self.tasks, 1.0)
        options: dict[str, Any] = {"seed": recipe.seed, "weights": weights, "parallel": parallel}
        self.updater = Updater(self.root, optimizer, self.tasks, recipe.train, world, **options)

    def __call__(self) -> StepResult:
        """The next step."""
        result = self.updater.run(self.number, self.work[self.number % len(self.work)])
        self.number += 1
        return result

    @property
    def micros(self) -> list[MicroBatch]:
        """The micro-batches of all steps."""
        return [item.micro for step in self.work for item in step if item.micro is not None]

    def flops(self) -> float:
        """Operations of a step, counted on padded attention: windows and causal masks count as if all were seen."""
        rows = statistics.mean(map(rows_of, self.micros))
        with use_kernel("padded"):
            return rows * flops_per_row(self.updater.parallel, self.micros[:1], self.updater.micro_pass.autocast)


def pinned(micro: MicroBatch, device: torch.device) -> MicroBatch:
    """The micro-batch in memory that a card copies from by itself."""
    return micro.pin_memory() if device.type == "cuda" else micro


def rows_of(micro: MicroBatch) -> int:
    """The rows of all streams of a micro-batch's first view."""
    return sum(stream.rows for stream in next(iter(micro.views.values())).streams.values())


def samples_of(micro: MicroBatch) -> int:
    """The sequences of a micro-batch's first view."""
    return next(iter(micro.views.values())).size


def timed(step: Callable[[], object], seconds: float = 0.0) -> list[float]:
    """Seconds of a step, of rounds of a few steps each, after some that warm up; at least three rounds, and exactly
    three without `seconds`: ranks must make the same steps."""
    for _ in range(WARM_UP):
        step()
    clock = clock_of(device="cuda")
    found: list[float] = []
    ends = clock() + seconds
    while len(found) < ROUNDS or clock() < ends:
        started = clock()
        for _ in range(ROUND):
            step()
        found.append((clock() - started) / ROUND)
    return found


def first_step(step: Callable[[], object]) -> float:
    """Seconds of a first step, what is compiled for it included."""
    clock = clock_of(device="cuda")
    started = clock()
    step()
    return clock() - started


def emptied() -> None:
    """Give back the card's memory that nobody holds, and count the peak anew."""
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
