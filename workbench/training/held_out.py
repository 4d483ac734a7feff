"""Held-out losses: one finite pass per task, the same samples with the same corruption every time.

`HeldOut` runs the passes; `Measured` gathers tensors of a whole pass for metrics that are no sums
(`Objective.measure`).
"""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from workbench.core.errors import unknown
from workbench.core.processes.distributed import World
from workbench.metrics.ranks import NonFiniteScoresError
from workbench.pretraining.loader import Ahead, Feed, MicroBatches, MicroBatchId, SampleReader
from workbench.pretraining.memory import Memory
from workbench.pretraining.objective import GlobalBatchHead, LossOutput
from workbench.pretraining.task import Task, labels
from workbench.recipe.train_spec import TrainSpec
from workbench.runs.metric_tables import HELD_OUT
from workbench.sequences.batch import MicroBatch
from workbench.training.embedding_gather import EmbeddingGather
from workbench.training.losses import (
    DeviceSums,
    EmbeddedFields,
    Label,
    MicroPass,
    Sums,
    add_sums,
    loss_of,
    zero,
)
from workbench.training.metrics import Window
from workbench.training.modes import evaluating
from workbench.training.nonfinite import dry
from workbench.training.parallel import ParallelModel, Work

logger = logging.getLogger(__name__)
HELD_OUT_SPLIT = 1


class HeldOutPass(SampleReader, Protocol):
    """The methods of `workbench.corpora`'s finite pass that evaluation needs."""

    @property
    def steps(self) -> int: ...


class HeldOut:
    """Evaluates a model on the held-out corpora of the tasks that have some.

    A pass is always read to its end. Where texts are read on, it has a memory of its own. A rank whose lanes are empty
    still joins the collectives.
    """

    def __init__(
        self,
        parallel: ParallelModel,
        tasks: Mapping[str, Task],
        passes: Mapping[str, HeldOutPass],
        spec: TrainSpec,
        seed: int,
    ) -> None:
        self.parallel, self.root, self.world = parallel, parallel.root, parallel.world
        self.tasks, self.passes, self.spec = tasks, passes, spec
        self.labels = labels(tasks)
        self.measured = Measured(tasks)
        self.micro_pass = MicroPass(spec.precision, self.world.device, seed)
        self.batches = MicroBatches(tasks, passes, split=HELD_OUT_SPLIT)
        self.gathers = defaultdict[Label, EmbeddingGather](lambda: EmbeddingGather(spec.lanes, self.world))

    def run(self, feed: Feed) -> dict[str, float] | None:
        """`held_out/<objective>/loss` and metrics, over all ranks; the same on every rank.

        All of an objective whose loss is not finite are NaN: its scores mean nothing.
        None where some rank gave up waiting for a micro-batch (of `self.batches`, which the feed has among others).
        """
        window, self.measured = Window(), Measured(self.tasks)
        with torch.no_grad(), evaluating(self.root), self.root.at_its_end():
            for task in self.passes:
                self._pass(feed, task, window)
        total = Window()
        ranks = self.world.gather((window.losses, window.metrics, feed.given_up))
        if any(given_up for *_, given_up in ranks):
            return None
        for losses, metrics, _ in ranks:
            add_sums(total.losses, losses)
            add_sums(total.metrics, metrics)
        values = total.means() | self.measured.metrics(self.world)
        odd = tuple(f"{name}/" for name, (loss, _) in total.losses.items() if not math.isfinite(loss))
        return {f"{HELD_OUT}{name}": math.nan if name.startswith(odd) else value for name, value in values.items()}

    def check(self) -> None:
        """Run a micro-batch of each pass whose objectives measure something. It leaves no trace. A missing output of a
        head is reported here, before a run has trained up to a pass that cannot work.

        Raises:
            WorkbenchError: a head doesn't return an output that its objective measures.
        """
        with torch.no_grad(), dry(self.root), self.parallel.trials(), evaluating(self.root), self.root.at_its_end():
            for task in self.passes:
                if not any(placed.objective.measured for placed in self.tasks[task].objectives):
                    continue
                micro = self.batches.micro_batch(MicroBatchId(task, 0, 0))
                (item,) = self.parallel.even([Work(task, 0, micro)], self.world.size)
                if (micro := item.micro) is None:
                    continue
                measured = Measured(self.tasks)
                with self.root.remembering(Memory()):
                    outputs = self._outputs(micro, task, 0, 0)
                for name, output in outputs.items():
                    measured.add((task, name), (0, 0), output if isinstance(output, dict) else output.outputs)

    def _outputs(
        self, micro: MicroBatch, task: str, number: int, lane: int, following: MicroBatch | None = None
    ) -> dict[str, LossOutput | EmbeddedFields]:
        """The outputs of the heads for a micro-batch, by objective."""
        forward = partial(self.root, objectives=list(micro.counts), embed=self.tasks[task].global_batch)
        return self.micro_pass(forward, micro, step=number, task=f"{HELD_OUT}{task}", lane=lane, following=following)

    def _pass(self, feed: Feed, task: str, window: Window) -> None:
        steps = self.passes[task].steps
        lanes = list(self.world.lanes(self.spec.lanes))
        places = [MicroBatchId(task, number, lane) for number in range(steps) for lane in lanes]
        with self.root.remembering(Memory()):
            sums = PassSums(self.labels, self.world.device)
            self._steps(task, steps, lanes, feed.micro_batches(self.batches, places), sums)
            sums.add_to(window)
        self.micro_pass.copies.forget()
        self.parallel.after_update(None)

    def _steps(self, task: str, steps: int, lanes: list[int], micros: Ahead, sums: PassSums) -> None:
        wide = self.tasks[task].global_batch
        for number in range(steps):
            embedded: dict[str, dict[int, EmbeddedFields]] = {name: {} for name in wide}
            counts: dict[str, dict[int, float]] = {name: {} for name in wide}
            work = (Work(task, lane, next(micros)) for lane in lanes)
            if self.parallel.whole_steps:
                work = (item for item in self.parallel.before_step(list(work), self.spec.lanes))
            for item in work:
                lane, micro = item.lane, item.micro
                if micro is None:
                    continue
                with self.parallel.running(item):
                    outputs = self._outputs(micro, task, number, lane, micros.peek())
                for name, output in outputs.items() if not item.stands_in else ():
                    if isinstance(output, dict):
                        embedded[name][lane] = output
                        counts[name][lane] = micro.counts[name]
                        self.measured.add((task, name), (number, lane), output)
                    else:
                        sums.add((task, name), output, micro.counts[name])
                        self.measured.add((task, name), (number, lane), output.outputs)
            if self.root.remembered is not None:
                self.root.remembered.commit()
            for name in wide:
                self._global_batch(sums, (task, name), embedded[name], counts[name])

    def _global_batch(
        self, sums: PassSums, label: Label, mine: dict[int, EmbeddedFields], counts: dict[int, float]
    ) -> None:
        whole, rows = self.gathers[label](mine)
        head = self.root.heads[label[1]]
        assert isinstance(head, GlobalBatchHead)
        for lane, count in counts.items():
            sums.add(label, loss_of(head, whole, rows[lane]), count)


class PassSums:
    """This rank's losses and metrics of a pass. They stay on the device, which is waited for once, at the end."""

    def __init__(self, names: Mapping[Label, str], device: torch.device) -> None:
        self.names = names
        self._sums = DeviceSums(names, device)
        self._counts: Sums = {}

    def add(self, label: Label, output: LossOutput, count: float) -> None:
        self._sums.add(label, output)
        add_sums(self._counts, {self.names[label]: (0.0, count)})

    def add_to(self, window: Window) -> None:
        losses, metrics, _ = self._sums.read(World(), zero(self._sums.device))
        added = {self.names[label]: loss for label, loss in losses.items()}
        add_sums(window.losses, {name: (added[name], count) for name, (_, count) in self._counts.items()})
        add_sums(window.metrics, metrics)


def improves(name: str, value: float, best: float | None, min_delta: float = 0.0) -> bool:
    """Whether a held-out value is better than the best so far by more than `min_delta`, which NaN never is: smaller for
    losses, ranks and perplexities."""
    if best is None or math.isnan(value):
        return not math.isnan(value)
    smaller = name.rsplit("/", 1)[-1].endswith(("loss", "rank", "perplexity", "error"))
    return value < best - min_delta if smaller else value > best + min_delta


class Measured:
    """Gathers the tensors that each objective's `measured` names until the pass is over."""

    def __init__(self, tasks: Mapping[str, Task]) -> None:
        self.objectives = {(task.name, p.name): p.objective for task in tasks.values() for p in task.objectives}
        self.names = labels(tasks)
        self.kept: dict[Label, dict[tuple[int, int], dict[str, Tensor]]] = {}

    def add(self, label: Label, place: tuple[int, int], made: Mapping[str, Tensor]) -> None:
        """Add the tensors of a micro-batch.

        Args:
            place: number and lane of the micro-batch; the tensors come in their order.
            made: the head's outputs (`LossOutput.outputs`; of a global-batch head its embeddings).

        Raises:
            WorkbenchError: a tensor that the objective measures is not among the outputs.
        """
        wanted = self.objectives[label].measured
        missing = [name for name in wanted if name not in made]
        if missing:
            by = "embedded by its global-batch head" if self.objectives[label].global_batch else "made by its head"
            raise unknown("tensor", missing[0], made, f"measured by {self.names[label]}, {by}")
        if wanted:
            self.kept.setdefault(label, {})[place] = {name: made[name].detach().cpu() for name in wanted}

    def metrics(self, world: World) -> dict[str, float]:
        """`<objective>/<metric>` of `Objective.measure`; the same on every rank."""
        found: dict[str, float] = {}
        whole: dict[Label, dict[tuple[int, int], dict[str, Tensor]]] = {}
        for kept in world.gather(self.kept):
            for label, parts in kept.items():
                whole.setdefault(label, {}).update(parts)
        for label, parts in whole.items():
            ordered = [parts[place] for place in sorted(parts)]
            made = {name: torch.cat([part[name] for part in ordered]) for name in ordered[0]}
            if any(map(len, made.values())):
                try:
                    measured = self.objectives[label].measure(made)
                except NonFiniteScoresError as error:
                    logger.warning("held-out pass: %s has no metrics: %s", self.names[label], error)
                    continue
                found |= {f"{self.names[label]}/{metric}": value for metric, value in measured.items()}
        return found
