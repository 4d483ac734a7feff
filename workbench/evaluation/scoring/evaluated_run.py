"""A trained run opened for evaluation, if asked under a control that ablates its knowledge or its images."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import torch

from workbench.components.build_context import Identities, components_within
from workbench.components.controls import check_control
from workbench.components.kinds import KINDS
from workbench.core.errors import WorkbenchError, choices, unknown
from workbench.core.processes.distributed import World
from workbench.corpora.corpus import Corpus
from workbench.interop.run_or_checkpoint import load
from workbench.models.network import Network
from workbench.pretraining.checks import check_linked_texts
from workbench.pretraining.objective import Head, Objective
from workbench.pretraining.task import Task, TaskObjective
from workbench.runs.checkpoints import Checkpoints
from workbench.runs.loaded_run import LoadedRun
from workbench.runs.names import is_run
from workbench.sequences.builders.document import DocumentBuilder
from workbench.sequences.sequence import Sample
from workbench.text.tokenizer import Tokenizer
from workbench.training.arithmetic import autocast_dtype

logger = logging.getLogger(__name__)
NETWORK_ALONE = "network"
"""The name in the place of an objective's, where a network is read without a head."""


class OpenedRun(Protocol):
    """Interface of the object that an evaluation scores: mostly a run (`EvaluatedRun`), always a dataclass."""

    @property
    def world(self) -> World:
        """The ranks that share the work."""

    @property
    def checkpoint(self) -> str:
        """The identity of the weights."""

    @property
    def read(self) -> Identities:
        """The identities of the files that were read when it was opened."""

    def check_linked(self, corpus: Corpus) -> None:
        """Raises WorkbenchError: it reads knowledge that the corpus does not have."""


@dataclass(frozen=True)
class EvaluatedRun:
    """What an evaluation needs: the run's task in evaluation mode, the objective's head in it, the network that the
    head reads, and the ranks that share the work."""

    loaded: LoadedRun
    task: Task
    objective: TaskObjective
    folder: Path
    world: World = field(default_factory=World)

    def on(self, world: World, precision: str = "float32") -> EvaluatedRun:
        """The same for these ranks, on their devices; every network of the run computes in a precision (`Scoring`).

        Raises:
            WorkbenchError: the device lacks it.
        """
        return self._on(world, autocast_dtype(precision, world.device, "--precision"))

    def alongside(self, other: EvaluatedRun) -> EvaluatedRun:
        """The same for the ranks of another one, in its precision: both are read in one evaluation."""
        return self._on(other.world, other.network.computes_in)

    def _on(self, world: World, dtype: torch.dtype | None) -> EvaluatedRun:
        for network in self.loaded.model.to(world.device).networks.values():
            assert isinstance(network, Network)
            network.computes_in = dtype
        return replace(self, world=world)

    @property
    def network(self) -> Network:
        return self.loaded.model.network(self.objective.network)

    @property
    def head(self) -> Head:
        model, name = self.loaded.model, self.objective.name
        average = dict(model.heads_of(self.objective.network).named_children()).get(name)
        head = average if isinstance(average, Head) else model.heads[name]
        assert isinstance(head, Head)
        return head

    @property
    def tokenizer(self) -> Tokenizer:
        if self.loaded.tokenizer is None:
            raise WorkbenchError(f"{self.folder} has no tokenizer; this evaluation needs a run on text")
        return self.loaded.tokenizer

    @property
    def acting(self) -> list[TaskObjective]:
        """The objective and those of the task that it comes after, in the order in which they act."""
        names = {self.objective.name}
        for each in reversed(self.task.objectives):
            names |= {*each.after} if each.name in names else set()
        return [each for each in self.task.objectives if each.name in names]

    @property
    def parts(self) -> list[Any]:
        """The components in use: of the task as it was built, its evaluating builder, the network and the head."""
        task = self.loaded.tasks[self.task.name].evaluating()
        objectives = [placed.objective for placed in self.acting]
        heads = [self.head] if self.objective.name in self.loaded.model.heads else []
        modules = [part for module in (self.network, *heads) for part in components_within(module)]
        return [task.builder, *task.transforms, *objectives, *modules]

    def trained_on(self) -> list[Sample] | None:
        """The records of the task's training set, for baselines. None, with a warning, if it is not available."""
        if not self.task.spec.corpora:
            return None  # of a checkpoint
        try:
            return [sample for place in self.task.spec.corpora for sample in Corpus.open(place)]
        except WorkbenchError as error:
            logger.warning("no baseline of the training set, which is not available: %s", error)
            return None

    def check_linked(self, corpus: Corpus) -> None:
        """Refuse to measure a run that reads knowledge on a corpus without any, unless a control ablates it.

        Raises:
            WorkbenchError: a transform of the task reads linked entities, and the corpus has none.
        """
        check_linked_texts(self.task, [corpus.place], self.loaded.recipe.control)

    def take_account(self) -> dict[str, dict[str, int]]:
        """The task's counts of `used` and `dropped` since the last call, on all ranks, as a result stores them."""
        used, dropped = Counter[str](), Counter[str]()
        for ours, lost in self.world.gather((self.task.take_used(), self.task.take_dropped())):
            used.update(ours)
            dropped.update(lost)
        return {"used": dict(used), "dropped": dict(dropped)}

    @property
    def read(self) -> Identities:
        return self.loaded.data_identities

    @property
    def checkpoint(self) -> str:
        return checkpoint_of(self.folder)


def checkpoint_of(run: Path) -> str:
    """The folder of the weights that `load` takes: the best checkpoint, or else the last; of a checkpoint its place."""
    return str(Checkpoints(run).best_or_last() if is_run(run) else run)


def open_run(
    run: Path,
    objective: type,
    wanted: str,
    *,
    task: str | None = None,
    control: str | None = None,
    trust: bool = False,
) -> EvaluatedRun:
    """`find_objective` in a run that is loaded for it.

    Args:
        task: the task's name, where the run has several.
        control: as the recipe's, for this evaluation alone.
        trust: whether components of the run's own code may be run.

    Raises:
        WorkbenchError: no such run, components that are not trusted, or as `find_objective`.
    """
    loaded = load(run, control=control, trust=trust)
    return find_objective(loaded, run, objective, wanted, task=task, control=control)


def find_objective(
    loaded: LoadedRun,
    run: Path,
    kind: type,
    wanted: str,
    **where: Any,
) -> EvaluatedRun:
    """The run's task with an objective of this class, of `Objective` itself with any; `where` and all else as
    `find_fitting_objective`."""
    name = KINDS["objective"].name(kind)
    name = kind.__name__.lower() if ":" in name else name

    def fits(task: Task, placed: TaskObjective) -> bool:
        return isinstance(placed.objective, kind)

    return find_fitting_objective(
        loaded, run, fits, f"the objective {name}", wanted, any_head=kind is Objective, **where
    )


def find_fitting_objective(
    loaded: LoadedRun,
    run: Path,
    fits: Callable[[Task, TaskObjective], bool],
    what: str,
    wanted: str,
    *,
    task: str | None = None,
    network: str | None = None,
    objective: str | None = None,
    control: str | None = None,
    any_head: bool = False,
) -> EvaluatedRun:
    """The run's task with an objective that fits, in evaluation mode, on the GPU where there is one. Several are one
    where they share the head and make their sequences alike.

    Args:
        what: such an objective, for messages.
        wanted: what to do where there is no such task, for the message.
        task: the task's name, where the run has several.
        network: the network that the objective reads, where such objectives read several. One that follows another is
            read with the heads of that one, or their moving averages.
        objective: its name, where several fit.
        control: what `loaded` was loaded under, for this evaluation alone.
        any_head: whether the network and the sequences are all that is asked for, so that several heads are as one.

    Raises:
        WorkbenchError: no such task, network or objective, several and none named, or a control that nothing in this
            run supports.
    """
    if task is not None and task not in loaded.tasks:
        raise unknown("task", task, loaded.tasks, str(run))
    if network is not None:
        loaded.model.network_name(network)
    tasks = [loaded.tasks[task]] if task is not None else list(loaded.tasks.values())
    names = dict.fromkeys(placed.name for each in tasks for placed in each.objectives)
    if objective is not None and objective not in names:
        raise unknown("objective", objective, names, str(run))
    followed = None if network is None else loaded.model.followed(network)
    found = [
        EvaluatedRun(loaded, each, replace(placed, network=network or placed.network), run)
        for each in (task.evaluating() for task in tasks)
        for placed in each.objectives
        if fits(each, placed) and placed.network in (network, followed or placed.network)
        if objective in (None, placed.name)
    ]
    if network is None and objective is None:
        own = [each for each in found if each.objective.name not in loaded.model.fixed]
        found = own or found  # a teacher's predictions are not the run's
    if not found:
        reading = f" that reads {network}" if network else ""
        raise WorkbenchError(f"{run} has no task with {what}{reading}: {wanted}")
    read = sorted({each.objective.network for each in found})
    if len(read) > 1:
        raise WorkbenchError(
            f"{run}: {what.removeprefix('the objective ')} reads the networks {', '.join(read)}; pass --network"
        )
    _check_one(found, run, what, any_head)
    check_control(control, found[0].parts, str(run))
    loaded.model.to("cuda" if torch.cuda.is_available() else "cpu")
    return found[0]


def find_network(
    loaded: LoadedRun, run: Path, *, task: str | None = None, network: str | None = None, control: str | None = None
) -> EvaluatedRun:
    """A network alone, without any head of ours, in the first task that reads it, on the GPU where there is one.

    Args:
        task: the name of the task that makes the sequences.
        network: the network's name, where there are several.

    Raises:
        WorkbenchError: no such task or network, several networks and none named, or a control that nothing supports.
    """
    name = loaded.model.network_name(network)
    tasks = [each.evaluating() for each in of_task(loaded, run, task).tasks.values()]
    reading = [each for each in tasks if any(placed.network == name for placed in each.objectives)]
    alone = TaskObjective(Objective(), NETWORK_ALONE, network=name)
    found = EvaluatedRun(loaded, next(iter([*reading, *tasks])), alone, run)
    check_control(control, found.parts, str(run))
    loaded.model.to("cuda" if torch.cuda.is_available() else "cpu")
    return found


def of_task(loaded: LoadedRun, run: Path, task: str | None) -> LoadedRun:
    """The run with a task alone, where one is named.

    Raises:
        WorkbenchError: there is no such task.
    """
    if task is None:
        return loaded
    if task not in loaded.tasks:
        raise unknown("task", task, loaded.tasks, str(run))
    return replace(loaded, tasks={task: loaded.tasks[task]})


def _check_one(found: list[EvaluatedRun], run: Path, what: str, any_head: bool) -> None:
    """
    Raises:
        WorkbenchError: these are several heads, or one that reads sequences of several kinds.
    """
    heads = list(dict.fromkeys(each.objective.name for each in found))
    if len(heads) > 1 and not any_head:
        listed = ", ".join(f"{each.task.name}.{each.objective.name}" for each in found)
        raise WorkbenchError(
            f"{run} has several with {what.removeprefix('the objective ')}: {listed}; choose one: "
            f"{choices('--objective', heads)}"
        )
    kinds = {json.dumps(asdict(each.task.spec.sequence), sort_keys=True, default=str): each for each in found}
    if len(kinds) > 1:
        names = list(dict.fromkeys(each.task.name for each in found))
        raise WorkbenchError(
            f"{run} has several tasks with {what}, which make their sequences differently: {', '.join(names)}; "
            f"choose one: {choices('--task', names)}"
        )


def texts_alone(found: EvaluatedRun) -> EvaluatedRun:
    """The same with texts read by themselves and to their end; builders of pairs read their beginnings alone.

    One that brings knowledge of its own (`Builder.reads_spans`) stays as it is.
    """
    builder = found.task.builder
    alone = builder if builder.reads_spans else DocumentBuilder.like(builder)
    return replace(found, task=found.task.with_builder(alone))
