"""`train.micro_batch_size: auto`: as many samples in a micro-batch as a CUDA device has room for.

Before anything else of a run is built, a model of the recipe takes whole steps on its real micro-batches, of one
sample, of two, of four, and so on. Then it is discarded; nothing of it is in the run. The result is the largest power
of two
- whose step, of the longest of several micro-batches of every task, leaves `MARGIN` of the memory free. That is for
  micro-batches that are longer still, and for what the allocator cannot use between tensors of ever new lengths.

The memory of a step includes gradients of an earlier micro-batch and the optimizer's moments, and on several ranks the
copy of the gradients that is reduced. All ranks use the smallest result of any rank.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from itertools import takewhile
from pathlib import Path

import torch

from workbench.core.errors import MachineError, WorkbenchError
from workbench.core.processes.distributed import World
from workbench.optimization.factory import make_optimizer
from workbench.optimization.groups import freeze
from workbench.pretraining.assembly import make_model, tasks_of
from workbench.pretraining.loader import MicroBatches, MicroBatchId
from workbench.pretraining.memory import Memory
from workbench.recipe.spec import Recipe
from workbench.recipe.train_spec import AUTO
from workbench.runs.checkpoints import Checkpoints
from workbench.runs.folder import read_recipe
from workbench.sequences.batch import MicroBatch
from workbench.text.tokenizer import Tokenizer
from workbench.training.data import reader_of
from workbench.training.losses import MicroPass
from workbench.training.modes import set_training

logger = logging.getLogger(__name__)
GIB = 2**30
MARGIN = 0.15
"""The share of the memory that stays free."""
LONGEST_OF = 64
"""The number of samples in which the longest micro-batch is searched: for one sample the longest of 8, later of two."""
Peak = Callable[[int], float]
"""The bytes that a step takes at most, by samples of a micro-batch; infinite where there is no room for them."""


def sized(recipe: Recipe, size: int) -> Recipe:
    """The recipe with the size that was found; the size is logged."""
    return replace(recipe, train=replace(recipe.train, micro_batch_size=size, micro_batch_size_by=AUTO))


def as_begun(recipe: Recipe, run: Path) -> Recipe:
    """The recipe with the size with which a run with checkpoints began, whatever the GPU is now."""
    if recipe.train.micro_batch_size != AUTO or Checkpoints(run).latest() is None:
        return recipe
    return sized(recipe, read_recipe(run).train.samples)


def with_micro_batch(recipe: Recipe, tokenizer: Tokenizer | None, world: World) -> Recipe:
    """The recipe with a number in place of `auto`, the same on every rank.

    Raises:
        WorkbenchError: no CUDA device.
        MachineError: a rank has no room for a single sample.
    """
    if world.device.type != "cuda":
        raise WorkbenchError(
            "train.micro_batch_size = auto measures the memory of a GPU, and this run is on a CPU, where the memory "
            "of a process has no such limit; set a number (it changes the time of a step, not what is learned)"
        )
    with torch.random.fork_rng([world.device]):
        trial = Trial(recipe, tokenizer, world)
        room = trial.room * (1 - MARGIN)
        candidates = possible_sizes(recipe.train.global_batch_size, world.size)
        size = largest(candidates, trial.peak, room)
    del trial
    release_memory(world.device)
    found = world.gather(size)
    if not min(found):
        raise MachineError(
            f"train.micro_batch_size = auto: rank {found.index(0)} has no room for a step of a single sample in "
            f"{1 - MARGIN:.0%} of its free memory. Set train.activation_checkpointing, shorten sequences "
            "(max_length), or use a smaller model"
        )
    bound = f"whose step leaves {MARGIN:.0%} of {room / (1 - MARGIN) / GIB:.1f} GiB free"
    if min(found) == candidates[-1]:
        ranks = f" and leaves work for {world.size} ranks" if world.size > 1 else ""
        bound = f"that divides global_batch_size = {recipe.train.global_batch_size}{ranks}; the card has room for it"
    logger.info("train.micro_batch_size = auto: %d, the largest power of two %s", min(found), bound)
    return sized(recipe, min(found))


def possible_sizes(whole: int, ranks: int) -> list[int]:
    """The powers of two that divide a step's samples, from 1 on, with equally many micro-batches for each rank, where
    that is possible; otherwise with at least one for each."""
    powers = [1 << n for n in range(whole.bit_length()) if whole % (1 << n) == 0]
    even = [size for size in powers if whole % (size * ranks) == 0]
    return even or [size for size in powers if whole // size >= ranks]


def largest(candidates: Iterable[int], peak: Peak, room: float) -> int:
    """The last of rising sizes that fits, up to the first that does not; 0: not even the first."""
    return max(takewhile(lambda size: peak(size) <= room, candidates), default=0)


def release_memory(device: torch.device) -> None:
    """Release memory that nothing uses any more, and reset the peak."""
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)


class Trial:
    """A model of a recipe that is trained to measure the memory that it takes.

    `room`: the bytes that this process may allocate on its device.
    """

    def __init__(self, recipe: Recipe, tokenizer: Tokenizer | None, world: World) -> None:
        self.recipe, self.device = recipe, world.device
        self.room = torch.cuda.mem_get_info(self.device)[0] + torch.cuda.memory_reserved(self.device)
        self.tasks = tasks_of(recipe, tokenizer)
        self.root = make_model(recipe, self.tasks, tokenizer)
        self.root.progress, self.root.remembered = 0.0, Memory()
        freeze(self.root, recipe.train)
        set_training(self.root)
        for network in self.root.networks.values():
            network.checkpointing = recipe.train.activation_checkpointing  # type: ignore[assignment]
        self.trained = [p for p in self.root.parameters() if p.requires_grad]
        reduced = sum(p.nbytes for p in self.trained) if world.size > 1 else 0
        self.room -= reduced
        self.optimizer = make_optimizer(self.root, recipe.train)
        self.run = MicroPass(recipe.train.precision, self.device, recipe.seed)

    def peak(self, size: int) -> float:
        """The peak memory of two steps, on the longest micro-batches of this size."""
        micros = self._micro_batches(size)
        release_memory(self.device)
        fits = True
        try:
            self.root.to(self.device)
            for _ in range(2):  # the second has gradients, moments and the memory of earlier texts
                for micro in micros:
                    self._pass_back(micro)
                self.optimizer.step()
        except torch.OutOfMemoryError:
            fits = False
        except RuntimeError as error:
            if "ALLOC_FAILED" not in str(error):  # cuBLAS found no room for its workspace
                raise
            fits = False
        found = float(torch.cuda.max_memory_allocated(self.device)) if fits else float("inf")
        logger.debug("micro-batches of %d samples: %.2f GiB", size, found / GIB)
        return found

    def _micro_batches(self, size: int) -> list[MicroBatch]:
        """For each task the micro-batch with the most rows, among the first ones."""
        recipe = sized(self.recipe, size)
        batches = MicroBatches(
            self.tasks, {name: reader_of(recipe, task, logs=False) for name, task in self.tasks.items()}
        )
        numbers = range(min(8, max(2, LONGEST_OF // size)))
        made = [[batches.micro_batch(MicroBatchId(name, n, 0, 0.0)) for n in numbers] for name in self.tasks]
        return [max(found, key=_rows) for micros in made if (found := [each for each in micros if each is not None])]

    def _pass_back(self, micro: MicroBatch) -> None:
        forward = partial(self.root, objectives=list(micro.counts))
        outputs = self.run(forward, micro, step=0, task=micro.task, lane=0)
        losses = [output.loss.float() for output in outputs.values()]
        total = torch.stack([loss for loss in losses if loss.requires_grad] or losses).sum()
        if total.requires_grad:
            total.backward()
        if self.root.remembered is not None:
            self.root.remembered.commit()


def _rows(micro: MicroBatch) -> int:
    return sum(stream.rows for view in micro.views.values() for stream in view.streams.values())
