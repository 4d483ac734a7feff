"""A task: corpora + sequence builder + objectives, and its half of the work in the loader's workers."""

from __future__ import annotations

import copy
import itertools
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

from torch import nn

from workbench.components.build_context import known_as, named
from workbench.components.building import build, find
from workbench.components.calls import FirstMicroBatches, call
from workbench.core.errors import WorkbenchError, unknown
from workbench.core.keyed import Draw, Draws
from workbench.core.options.bounds import NotNegative, Word
from workbench.core.options.values import check
from workbench.corpora.schema.places import without_links
from workbench.pretraining.loss_weight import LossWeight
from workbench.pretraining.objective import BATCH_TARGETS, COUNT, DROPPED, BatchTargets, Objective
from workbench.recipe.spec import Recipe, SequenceSpec, Spec, TaskSpec
from workbench.sequences.batch import Batch, MicroBatch, collate, share_streams
from workbench.sequences.fetched_rows import FetchedRows
from workbench.sequences.sequence import Sample, Sequence, Slot
from workbench.sequences.sequence_checks import SAMPLES, SEQUENCES, check_limits

logger = logging.getLogger(__name__)


DEFAULT_VIEW = "main"
DEFAULT_NETWORK = "main"
OF_NETWORKS = ("embeddings", "layers", "poolers")
"""The entries of a network; weights to start from have these in addition to the heads, named after their objectives."""


@dataclass(frozen=True)
class Placement:
    """The entries of a recipe for an objective, besides the objective's own options.

    `view` names the variant of the batch its hooks act on, `network` the network whose states its head reads,
    `weight` the factor of its loss (`workbench.pretraining.loss_weight`), `after` objectives of the task whose heads
    run first. With `targets` it has the targets of an earlier objective of the same kind and view, and changes nothing
    itself: a teacher predicts what its student does.
    """

    name: Word | None = None
    weight: NotNegative | LossWeight = 1.0
    view: Word = DEFAULT_VIEW
    network: Word = DEFAULT_NETWORK
    after: list[Word] = field(default_factory=list)
    targets: Word | None = None


@dataclass
class TaskObjective:
    """An objective in its place; see `Placement`. `stated` is its entry in the recipe, without the weight."""

    objective: Objective
    name: str
    weight: float | LossWeight = 1.0
    view: str = DEFAULT_VIEW
    network: str = DEFAULT_NETWORK
    after: tuple[str, ...] = ()
    stated: Spec = field(default_factory=dict)
    targets: str | None = None

    def weight_at(self, progress: float) -> float:
        """The factor of its loss at this progress of the run (0 to 1)."""
        return self.weight.at(progress) if isinstance(self.weight, LossWeight) else self.weight


class Task:
    """The work of a recipe's task on samples, up to a micro-batch of jagged tensors. Holds no weights.

    Args:
        name: the task's name in the recipe; part of the key of every generator.
        spec: the task as written in the recipe.
        seed: the recipe's seed.
        resources: those that components may request by the names of their arguments (`tokenizer`, `control`, ...).

    Raises:
        WorkbenchError: a component, an option or a value that does not exist, or two objectives of one name.
    """

    def __init__(self, name: str, spec: TaskSpec, *, seed: int, resources: Mapping[str, Any]) -> None:
        self.name = name
        self.spec = spec
        self.seed = seed
        self.linked = resources.get("control") != "no-kg"
        tokenizer = resources.get("tokenizer")
        self.unknown: int | None = tokenizer.id("unk") if tokenizer is not None and tokenizer.has("unk") else None
        self.limits: dict[str, dict[str, int]] = {}  # of fields of the networks' streams, once the networks exist
        self.lookups: dict[str, Callable[[dict[str, Batch], list[TaskObjective]], FetchedRows]] = {}
        where = f"tasks.{name}"
        given = {"seed": seed, **resources}
        self.builder = build("builder", spec.sequence.builder, f"{where}.sequence", **given)
        if hasattr(self.builder, "max_length"):
            given["max_length"] = self.builder.max_length
        self.transforms = [
            build("transform", transform, f"{where}.sequence.transforms[{i}]", **given)
            for i, transform in enumerate(spec.sequence.transforms)
        ]
        self.objectives = [
            _place(objective, f"{where}.objectives[{i}]", given) for i, objective in enumerate(spec.objectives)
        ]
        self._first = FirstMicroBatches()
        _check_names(self.objectives, where)
        _check_targets(self.objectives, where)
        self.objectives = _in_order(self.objectives, where)

    def __repr__(self) -> str:
        return f"<Task {self.name}: {type(self.builder).__name__}, {', '.join(self.names)}>"

    @property
    def names(self) -> list[str]:
        """The names of its objectives, in the order in which their heads run."""
        return [placed.name for placed in self.objectives]

    @property
    def components(self) -> list[Any]:
        """Its builder, transforms and objectives."""
        return [self.builder, *self.transforms, *(placed.objective for placed in self.objectives)]

    @property
    def global_batch(self) -> list[str]:
        """The names of its global-batch objectives."""
        return [placed.name for placed in self.objectives if placed.objective.global_batch]

    @property
    def views(self) -> dict[str, list[TaskObjective]]:
        """The objectives of every view, in the order in which they act."""
        views: dict[str, list[TaskObjective]] = {}
        for placed in self.objectives:
            views.setdefault(placed.view, []).append(placed)
        return views

    def micro_batch(self, samples: list[Sample], number: Draw, progress: float = 1.0) -> MicroBatch:
        """Samples -> arrange hooks -> builder -> transforms -> per view: corrupt hooks, collate, counts.

        `number` identifies the micro-batch (split, number, lane). With the seed, the task's and the objective's names
        it is the key of every generator. Hooks get the `progress` of the run.
        """
        again = partial(self._micro_batch, samples, number, progress)
        with self._first.checked(self.name, again):
            return again()

    def _micro_batch(self, samples: list[Sample], number: Draw, progress: float) -> MicroBatch:
        read = samples
        samples = self._readable(samples)
        samples = call(self.builder, "arrange", SAMPLES, samples, self._draws("builder", "arrange", number, progress))
        for placed in self.objectives:
            draws = self._draws(placed.name, "arrange", number, progress)
            samples = call(placed.objective, "arrange", SAMPLES, samples, draws)
        sequences = self.sequences(samples, number, progress)
        slots = slots_of(read, sequences) if any("slot" in sample for sample in read) else []
        views: dict[str, Batch] = {}
        counts: dict[str, float] = {}
        grouped = self.views
        for view, objectives in grouped.items():
            mine = sequences if len(grouped) == 1 else [sequence.copy() for sequence in sequences]
            targets: dict[str, BatchTargets] = {}
            for placed in objectives:
                if placed.targets is not None:
                    targets[placed.name] = same_targets(placed, mine, targets[placed.targets])
                else:
                    targets[placed.name] = self._corrupt(placed, mine, number, progress)
            views[view] = collate(mine, targets)
            counts |= {placed.name: call(placed.objective, "count", COUNT, views[view]) for placed in objectives}
        tables = {path: lookup(views, self.objectives) for path, lookup in self.lookups.items()}
        return MicroBatch(self.name, share_streams(views), counts, number, self.take_dropped(), slots, tables)

    def sequences(self, samples: list[Sample], number: Draw = (), progress: float = 1.0) -> list[Sequence]:
        """The sequences of the builder and the transforms, without objectives, for evaluation and encoding."""
        samples, draws = self._readable(samples), self._draws("builder", "build", number, progress)
        sequences: list[Sequence] = call(self.builder, "", SEQUENCES, samples, draws)
        for i, transform in enumerate(self.transforms):
            sequences = call(transform, "", SEQUENCES, sequences, self._draws(f"step-{i}", "build", number, progress))
        self._check_limits(sequences, f"tasks.{self.name}.sequence:")
        return sequences

    def _readable(self, samples: list[Sample]) -> list[Sample]:
        """The samples; under `no-kg` without their links, so that no component that ignores the control reads them."""
        return samples if self.linked else [without_links(sample) for sample in samples]

    def _check_limits(self, sequences: list[Sequence], maker: str) -> None:
        for sequence, stream in itertools.product(sequences, self.limits):
            who = f"{maker} sequence {sequence.key!r}, in its stream {stream!r},"
            check_limits(sequence.streams.get(stream, {}), self.limits[stream], who)

    def _corrupt(self, placed: TaskObjective, sequences: list[Sequence], number: Draw, progress: float) -> BatchTargets:
        draws = self._draws(placed.name, "corrupt", number, progress)
        targets: BatchTargets = call(placed.objective, "corrupt", BATCH_TARGETS, sequences, draws)
        self._check_limits(sequences, f"{named(placed.objective)}: after `corrupt`")
        return targets

    def with_builder(self, builder: Any) -> Task:
        """The same task with another builder and the same transforms."""
        other = copy.copy(self)
        other.builder, other._first = builder, FirstMicroBatches()
        return other

    def evaluating(self) -> Task:
        """The same task with its builder in evaluation mode (`Builder.evaluating`)."""
        return self.with_builder(known_as(self.builder.evaluating(), self.builder))

    def take_dropped(self) -> dict[str, int]:
        """The samples and elements that the builder and the transforms dropped since the last call, by reason."""
        return self._taken("take_dropped")

    def take_used(self) -> dict[str, int]:
        """The knowledge that the transforms added since the last call, by its kind."""
        return self._taken("take_used")

    def _taken(self, method: str) -> dict[str, int]:
        """The counts of the builder and the transforms that have some. With several transforms that add entities each
        count has the name of its stream."""
        taken: Counter[str] = Counter()
        several = sum(transform.entity_stream is not None for transform in self.transforms) > 1
        for part in (self.builder, *self.transforms):
            if hasattr(part, method):
                stream = getattr(part, "entity_stream", None) if several else None
                counts = call(part, method, DROPPED).items()
                taken.update({of_stream(name, stream) if stream else name: int(n) for name, n in counts})
        return dict(taken)

    def _draws(self, part: str, hook: str, number: Draw, progress: float) -> Draws:
        key = (self.seed, self.name, part, hook)
        return Draws(*key, number=number, progress=progress, duplicates=self.spec.duplicates)


def build_tasks(specs: Mapping[str, TaskSpec], *, seed: int, resources: Mapping[str, Any]) -> dict[str, Task]:
    """The tasks of a recipe by name."""
    if not specs:
        raise WorkbenchError("the recipe names no task; give at least one under `tasks`")
    return {name: Task(name, spec, seed=seed, resources=resources) for name, spec in specs.items()}


def labels(tasks: Mapping[str, Task]) -> dict[tuple[str, str], str]:
    """(task, objective) -> the name of its losses and metrics: the objective's own where no other task has it."""
    names = [placed.name for task in tasks.values() for placed in task.objectives]
    return {
        (task.name, placed.name): placed.name if names.count(placed.name) == 1 else f"{task.name}.{placed.name}"
        for task in tasks.values()
        for placed in task.objectives
    }


def of_stream(count: str, stream: str) -> str:
    """The name of a count where several transforms add entities: `mentions (wiki)`."""
    return f"{count} ({stream})"


def objective_name(spec: Spec) -> str:
    """The name of an objective in a recipe: its `name` there, or the last component of its own."""
    return str(spec.get("name") or re.split("[.:]", str(spec["objective"]))[-1].lower())


def objectives_of(recipe: Recipe, network: str) -> dict[str, Spec]:
    """The entries of a recipe for the objectives that read a network, by name; a follower has those of its network."""
    return {objective_name(spec): spec for _, spec in _placed(recipe, network)}


def visibilities_of(recipe: Recipe, network: str) -> frozenset[str]:
    """The visibilities of texts in the tasks from which a network learns; none where it reads no text."""
    if "text" not in recipe.all_networks[network].streams:
        return frozenset()
    return frozenset(seen for task, _ in _placed(recipe, network) for seen in visibilities_in(task.sequence))


def visibilities_in(sequence: SequenceSpec) -> list[str]:
    """Those that a recipe states, or the one of the builder."""
    if sequence.visibility is not None:
        return sequence.visibilities
    name = sequence.builder if isinstance(sequence.builder, str) else str(sequence.builder["builder"])
    return [getattr(find("builder", name), "usual_visibility", "bidirectional")]


def tasks_that_read(recipe: Recipe, network: str) -> list[TaskSpec]:
    """The tasks with an objective from which a network learns, or the network that it follows."""
    return list({id(task): task for task, _ in _placed(recipe, network)}.values())


def _placed(recipe: Recipe, network: str) -> Iterator[tuple[TaskSpec, Spec]]:
    network = recipe.followers[network].follows if network in recipe.followers else network
    for task in recipe.tasks.values():
        yield from ((task, spec) for spec in task.objectives if spec.get("network", DEFAULT_NETWORK) == network)


def _place(spec: Spec, where: str, given: Mapping[str, Any]) -> TaskObjective:
    options = dict(spec)
    names = [field.name for field in fields(Placement)]
    place = check(Placement, {name: options.pop(name) for name in names if name in options}, where)
    objective = build("objective", options, where, **given)
    objective.name = objective_name(spec)
    after = (*objective.after, *place.after)
    stated = {name: value for name, value in spec.items() if name != "weight"}
    return TaskObjective(
        objective, objective.name, place.weight, place.view, place.network, after, stated, place.targets
    )


def same_targets(placed: TaskObjective, sequences: list[Sequence], whole: BatchTargets) -> BatchTargets:
    """Give sequences the targets that an objective takes from another one; returns those of the batch."""
    for sequence in sequences:
        if placed.targets in sequence.targets:
            sequence.targets[placed.name] = dict(sequence.targets[placed.targets])
    return dict(whole)


def _in_order(objectives: list[TaskObjective], where: str) -> list[TaskObjective]:
    """The objectives in the recipe's order, except that some come `after` others."""
    names = [placed.name for placed in objectives]
    for placed in objectives:
        for other in placed.after:
            if other not in names:
                raise unknown("objective", other, names, f"{where}: {placed.name!r} comes after it")
    ordered: list[TaskObjective] = []
    while len(ordered) < len(objectives):
        done = {placed.name for placed in ordered}
        ready = [placed for placed in objectives if placed.name not in done and done.issuperset(placed.after)]
        if not ready:
            circle = [name for name in names if name not in done]
            raise WorkbenchError(f"{where}: the objectives {', '.join(circle)} each come after another one of them")
        ordered.append(ready[0])
    return ordered


def _check_targets(objectives: list[TaskObjective], where: str) -> None:
    """
    Raises:
        WorkbenchError: an objective takes the targets of one that is not before it, of another kind or view, or that
            takes them itself.
    """
    for number, placed in enumerate(objectives):
        if placed.targets is None:
            continue
        fitting = [
            each.name
            for each in objectives[:number]
            if (type(each.objective), each.view, each.targets) == (type(placed.objective), placed.view, None)
        ]
        if placed.targets not in fitting:
            advice = "Targets are those of an objective of the same kind and view that stands before it"
            raise unknown("objective", placed.targets, fitting, f"{where}: targets of {placed.name!r}", advice=advice)
        placed.after = (*placed.after, placed.targets)


def _check_names(objectives: list[TaskObjective], where: str) -> None:
    names = [placed.name for placed in objectives]
    for name in names:
        if name in OF_NETWORKS or hasattr(nn.ModuleDict(), name):
            raise WorkbenchError(f"{where}: an objective cannot be named {name!r}; give it another `name`")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise WorkbenchError(f"{where}: several objectives are named {twice[0]!r}; give each its own `name`")


def slots_of(samples: list[Sample], sequences: list[Sequence]) -> list[Slot]:
    """The slot of each sequence: that of the sample it was built from.

    If a sample has several sequences (its window has more tokens than a sequence), the first one continues from the
    micro-batch before, and the next micro-batch continues from the last one.

    Raises:
        WorkbenchError: a sequence of several texts, or of one with branches, which cannot be continued.
    """
    slots: dict[Draw, Slot] = {sample["draw"]: sample["slot"] for sample in samples}
    found = []
    for sequence in sequences:
        packed = "documents" in sequence.meta
        if packed or any("branch" in fields for fields in sequence.streams.values()):
            why = "holds several texts (builder packed)" if packed else "has branches (kg.sentence_tree)"
            raise WorkbenchError(
                f"order: continuous: sequence {sequence.key!r} {why}, so that nothing can continue from it; use "
                "the builder document without such transforms, or order: shuffled"
            )
        draw = sequence.draw[:-1]
        slot = slots.get(draw)
        if slot is None:
            raise WorkbenchError(
                f"order: continuous: sequence {sequence.key!r} belongs to none of the texts that were read (its draw "
                f"is {sequence.draw}); a builder's or transform's sequence has the draw of its sample, and a number"
            )
        slots[draw] = Slot(slot.number, False)
        found.append(slot)
    return found
