"""One optimizer step: counts, forward and backward of every micro-batch, reduction, clipping, the update.

The count of every objective is summed over all micro-batches and ranks before any forward, so each micro-batch
backpropagates its share of sum over objectives of weight * sum / global count (`losses.py`).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from workbench.components.build_context import named
from workbench.components.calls import FirstMicroBatches
from workbench.components.error_context import ErrorContext
from workbench.core.errors import WorkbenchError
from workbench.core.processes.distributed import World
from workbench.optimization.clipping import clip_gradients
from workbench.optimization.groups import hold_back
from workbench.pretraining.model import PretrainingModel
from workbench.pretraining.task import Task, labels
from workbench.recipe.train_spec import TrainSpec
from workbench.sequences.batch import MicroBatch
from workbench.training.arithmetic import refuse_unordered
from workbench.training.embedding_gather import EmbeddingGather
from workbench.training.loss_scale import LossScale
from workbench.training.losses import Label, MicroPass, StepLosses, Sums
from workbench.training.nonfinite import dry, watched
from workbench.training.parallel import ParallelModel, ReplicatedModel, Work


class MissingError(Exception):
    """Some rank gave up waiting for its micro-batches, so no rank made the step.

    `flags` are the sums over ranks of the flags given to `Updater.run`.
    """

    def __init__(self, flags: list[float]) -> None:
        self.flags = flags


@dataclass
class StepResult:
    """The result of a step: losses (sum, count) over all ranks, this rank's metrics, sizes over all ranks.

    `flags` are the sums over ranks of the flags given to `Updater.run`. A step that was `skipped`, as its gradients
    overflowed in float16, has neither losses nor metrics.
    """

    losses: Sums
    metrics: Sums
    grad_norm: float
    rows: int
    samples: int
    flags: list[float] = field(default_factory=list)
    dropped: dict[str, int] = field(default_factory=dict)
    skipped: bool = False


class Updater:
    """Runs optimizer steps of a model on this rank's micro-batches.

    Args:
        weights: the factor of each task's losses, in addition to the objectives' own.
        parallel: the model on all ranks; by default every rank has all of it.
    """

    def __init__(
        self,
        root: PretrainingModel,
        optimizer: torch.optim.Optimizer,
        tasks: Mapping[str, Task],
        spec: TrainSpec,
        world: World,
        *,
        seed: int,
        weights: Mapping[str, float],
        parallel: ParallelModel | None = None,
    ) -> None:
        self.parallel = parallel or ReplicatedModel(root, world)
        self.root, self.optimizer, self.tasks, self.spec, self.world = root, optimizer, tasks, spec, world
        self.labels = labels(tasks)
        self.micro_pass = MicroPass(spec.precision, world.device, seed)
        self.loss_scale = LossScale(world.size) if self.micro_pass.autocast == torch.float16 else None
        self.trained = [p for p in root.parameters() if p.requires_grad]
        self.gathers = defaultdict[tuple[str, ...], EmbeddingGather](lambda: EmbeddingGather(spec.lanes, world))
        self.unheard = set(self.labels)
        """Objectives that have not yet had labels in a step."""
        self.weights = weights
        self.first = FirstMicroBatches(root, repeats=self.parallel.alone)

    def run(
        self,
        step: int,
        work: list[Work],
        flags: list[float] | None = None,
        *,
        missing: bool = False,
        following: MicroBatch | None = None,
    ) -> StepResult:
        """Update `step` (from 0).

        Args:
            missing: whether this rank gave up waiting for its micro-batches.
            following: the first micro-batch of the next step, where it is there already.

        Raises:
            MissingError: a rank's micro-batches are missing; nothing was done.
            WorkbenchError: a loss or the gradient's norm is not finite (in float16 also with the smallest scale), an
                objective with labels has a loss that depends on no trained parameter, or an operation has no
                deterministic form where `train.deterministic` asks for one; the weights are as before the step.
        """
        counts, rows, samples, (unmade, *agreed) = self._agree(work, [float(missing), *(flags or [])])
        if unmade:
            raise MissingError(agreed)
        factors = {label: factor / counts[label] if counts[label] else 0.0 for label, factor in self.factors().items()}
        present = dict.fromkeys(item.task for item in work)
        self.optimizer.zero_grad(set_to_none=True)
        stepped = StepLosses(self.root, self.tasks, factors, self.spec.lanes, self.world, self.gathers)
        even = self.parallel.before_step(work, self.spec.lanes)
        if not stepped.one_pass:
            for task in present:
                of_task = [item for item in even if item.task == task]
                stepped.embed(self.micro_pass, step, of_task, self.first, self.parallel.running)
        self._backward(step, even, stepped, following)
        self.micro_pass.copies.forget(following)
        self.parallel.finish()
        if self.loss_scale is not None:
            self.loss_scale.unscale([*self.trained, *self.parallel.leaves])
        stepped.finish()
        self._check_gradients(factors, stepped.learning)
        hold_back(self.optimizer, step)
        received = self.parallel.reduce(self.optimizer, step)
        norm = clip_gradients(self.trained, self.spec.clip_norm, received)
        losses, metrics, grad_norm = stepped.sums.read(self.world, norm)
        dropped: Counter[str] = Counter()
        for item in work:
            dropped.update(item.micro.dropped if item.micro else {})
        if what := _not_finite(losses, counts, grad_norm):
            self._skip(step, even, what)
            return StepResult({}, {}, grad_norm, rows, samples, agreed, dict(dropped), skipped=True)
        if self.loss_scale is not None:
            self.loss_scale.passed()
        with ErrorContext(self.optimizer):
            self.optimizer.step()
        self.parallel.after_update(self.optimizer)
        self.root.after_step(step + 1, stepped.kept_of(present))
        if self.root.remembered is not None:
            self.root.remembered.commit()
        named = {self.labels[label]: (losses[label], count) for label, count in counts.items() if count}
        return StepResult(named, metrics, grad_norm, rows, samples, agreed, dict(dropped))

    def factors(self) -> dict[Label, float]:
        """The weight of each objective in the model's present progress, times that of its task."""
        return {
            (task.name, placed.name): self.weights[task.name] * placed.weight_at(self.root.progress)
            for task in self.tasks.values()
            for placed in task.objectives
        }

    def changing_weights(self) -> dict[str, float]:
        """The weights that change over the run, of the last update, by the objectives' names in metrics."""
        return {
            f"{self.labels[task.name, placed.name]}/weight": placed.weight_at(self.root.progress)
            for task in self.tasks.values()
            for placed in task.objectives
            if not isinstance(placed.weight, float | int)
        }

    def _skip(self, step: int, work: list[Work], what: str) -> None:
        """Leave out an update whose numbers are not finite, with a smaller scale of the loss.

        Raises:
            WorkbenchError: the loss has no scale, or the smallest.
        """
        if self.loss_scale is None or not self.loss_scale.overflowed():
            raise WorkbenchError(f"step {step + 1}: {what}. {self._cause(step, work)}")
        if self.root.remembered is not None:
            self.root.remembered.forget()
        self.parallel.after_update(None)

    def _agree(self, work: list[Work], flags: list[float]) -> tuple[dict[Label, float], int, int, list[float]]:
        """Counts of every objective, rows, samples and flags, summed over micro-batches and ranks."""
        order = list(self.labels)
        values = torch.zeros(len(order) + 2 + len(flags), dtype=torch.float64)
        for item in work:
            if item.micro is None:
                continue
            for i, (task, name) in enumerate(order):
                if task == item.task:
                    values[i] += item.micro.counts[name]
            sizes = [(sum(s.rows for s in view.streams.values()), view.size) for view in item.micro.views.values()]
            values[len(order)] += sizes[0][0]
            values[len(order) + 1] += sizes[0][1]
        values[-len(flags) :] = torch.tensor(flags, dtype=torch.float64)
        total = self.world.agree(values).tolist()
        rows, samples = int(total[len(order)]), int(total[len(order) + 1])
        return dict(zip(order, total, strict=False)), rows, samples, total[len(order) + 2 :]

    def _backward(self, step: int, work: list[Work], stepped: StepLosses, following: MicroBatch | None) -> None:
        """Backpropagate every micro-batch; gradients are reduced over ranks during the last one.

        A rank without a micro-batch takes part where its pass gathers the embeddings of a step.
        """
        gathers = {name for name, task in self.tasks.items() if stepped.one_pass and task.global_batch}
        present = [item for item in work if item.micro is not None or item.task in gathers] or work[-1:]
        later = [*(item.micro for item in present[1:]), following]
        for i, item in enumerate(present):
            task, total = self.tasks[item.task], partial(stepped.total, item.task, item.lane)
            forward = partial(self.parallel.forward, task=task, total=total, stands_in=item.stands_in)
            run = partial(self.micro_pass, step=step, task=item.task, lane=item.lane)
            alone = partial(self.root, objectives=task.names, embed=task.global_batch)  # no sums, and no other rank
            checked = self.first.checked(item.task, partial(run, alone, item.micro))
            last = i + 1 == len(present)
            with self.parallel.running(item), self.parallel.backward(last), checked:
                self._pass_back(partial(run, forward, item.micro, following=later[i]))

    def _pass_back(self, forward: Callable[[], Tensor]) -> None:
        """The forward and backward of one micro-batch."""
        try:
            loss = forward()
            (loss if self.loss_scale is None else self.loss_scale.scaled(loss)).backward()
        except RuntimeError as error:
            refuse_unordered(error, self.root, forward)
            raise

    def _check_gradients(self, factors: Mapping[Label, float], learning: set[Label]) -> None:
        """At the first step in which an objective has labels: on some rank its loss must have a gradient.

        An objective of weight 0 is only logged, and its loss need not have one.
        """
        heard = [label for label in self.labels if label in self.unheard and factors[label]]
        if not heard:
            return
        self.unheard -= set(heard)
        ranks = self.world.sum(torch.tensor([float(label in learning) for label in heard])).tolist()
        for (task, name), able in zip(heard, ranks, strict=True):
            if not able:
                placed = next(placed for placed in self.tasks[task].objectives if placed.name == name)
                raise WorkbenchError(
                    f"{named(placed.objective)}: its loss depends on no trained parameter, so nothing would be learned "
                    "from it. Either its head detaches its inputs (detach, item, no_grad, an argmax), or all of the "
                    "network and head is frozen (train.freeze, train.train_only, model.adapt). Fix that, or set "
                    "weight: 0 to only log it"
                )

    def _cause(self, step: int, work: list[Work]) -> str:
        """The source of numbers that are not finite, after the forward was run again with every module watched, and the
        advice."""
        with torch.no_grad(), dry(self.root), watched(self.root) as found:
            for item in (item for item in work if item.micro is not None):
                forward = partial(self.root, objectives=self.tasks[item.task].names)
                self.micro_pass(forward, item.micro, step=step, task=item.task, lane=item.lane)
        first = f"The first output that is not finite is that of {found[0]}. " if found else ""
        if self.loss_scale is not None:
            first += f"It overflowed in float16 with a loss scale of {self.loss_scale.scale:g} too, the smallest. "
        if step == 0:
            return (
                f"{first}No update was made yet, so no learning rate is the cause, and nothing is saved: fix the "
                "component or its data, or try train.precision=float32"
            )
        return (
            f"{first}Stopped before the update; existing checkpoints are from earlier steps. Try a "
            "lower train.lr, more train.lr_schedule.warmup_steps, a smaller train.clip_norm or train.precision=float32"
        )


def _not_finite(losses: dict[Label, float], counts: dict[Label, float], norm: float) -> str:
    """The loss that is not finite, or else the gradient's norm, in words."""
    for (task, name), value in losses.items():
        if counts[task, name] and not math.isfinite(value):
            return f"the loss of objective {name!r} of task {task!r} is {value}"
    if math.isfinite(norm):
        return ""
    active = ", ".join(f"{n!r} of task {t!r}" for (t, n), count in counts.items() if count)
    return f"the gradient's norm is {norm} (objectives: {active})"
