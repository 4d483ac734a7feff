"""Tasks whose objective computes the numbers of a held-out pass (`Objective.measure`).

`evaluate` and a held-out pass in training report the same numbers, and `train.best` may name any of them. A pass adds
up the sums of `LossOutput.metrics` over micro-batches and ranks. Numbers that are no sums (an F1, a correlation) are
computed by `measure` from tensors of the whole pass, which `measured` names among the outputs of the head.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from workbench.components.controls import ablated_by
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.core.processes.distributed import World
from workbench.corpora.corpus import Corpus
from workbench.evaluation.options import Scoring, Tuning
from workbench.evaluation.scoring.downstream_task import DownstreamTask
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun
from workbench.evaluation.scoring.evaluation_items import SCORES, EvaluationItems
from workbench.evaluation.scoring.passes import PassOutput, forward_pass, sample_pass
from workbench.evaluation.scoring.rank_shares import shared_groups
from workbench.evaluation.scoring.result import Result
from workbench.metrics.classes import never_predicted
from workbench.pretraining.forward import ForwardPass as Pass
from workbench.pretraining.forward import HeadInputs, ViewKey
from workbench.pretraining.objective import GlobalBatchHead, Objective
from workbench.pretraining.task import Task, same_targets
from workbench.pretraining.window_lengths import window_of
from workbench.sequences.sequence import Sample, Sequence

logger = logging.getLogger(__name__)
GatheredTensors = Mapping[str, Tensor]
TuningOptions = TypeVar("TuningOptions", bound=Tuning)
ScoringOptions = TypeVar("ScoringOptions", bound=Scoring)
EXAMPLES, LOOKED_AT = 12, 48
LISTED = 5


def measured(run: EvaluatedRun, groups: Iterable[list[Sample]]) -> dict[str, Tensor]:
    """`measured_items` without their keys."""
    return measured_items(run, groups, lambda targets: 0)[0]


def measured_items(
    run: EvaluatedRun, groups: Iterable[list[Sample]], count: Callable[[Mapping[str, Any]], int]
) -> tuple[dict[str, Tensor], list[str]]:
    """The tensors that the objective measures (`Objective.measured`), of all groups together, on the CPU, and the key
    of each item. A sequence with these targets has `count` items.

    Each rank of `run.world` takes its share of the groups; all get what all made. Empty where nothing is labelled.
    """

    def measure(number: int, group: list[Sample]) -> tuple[dict[str, Tensor], list[str]]:
        return measured_group(run, group, number, count)[:2]

    parts = [part for part in shared_groups(run.world, groups, measure) if part[0]]
    whole = {name: torch.cat([part[name] for part, _ in parts]) for name in (parts[0][0] if parts else ())}
    return (whole if any(map(len, whole.values())) else {}), [key for _, keys in parts for key in keys]


class MeasuredGroup(NamedTuple):
    """What the objective measures of a group of samples, the key of each item, and the sequences that were read."""

    made: dict[str, Tensor]
    keys: list[str]
    sequences: list[Sequence]


def measured_group(
    run: EvaluatedRun, group: list[Sample], number: int, count: Callable[[Mapping[str, Any]], int]
) -> MeasuredGroup:
    """As `measured_items` of the group of this number. Only the `corrupt` of this objective acts on the sequences,
    which writes its targets, behind those of the objectives that it comes `after`."""
    placed, acting = run.objective, run.acting
    objective = placed.objective

    def labelled(samples: list[Sample], number: tuple[int, ...]) -> list[Sequence]:
        sequences = run.task.sequences(samples, number)
        for each in acting:
            if each.targets is not None:
                same_targets(each, sequences, {})
                continue
            each.objective.corrupt(sequences, Draws(run.task.seed, run.task.name, each.name, number=number))
        return sequences

    for forward in forward_pass(run.network, labelled, [group], first=number):
        targets = forward.batch.targets.get(placed.name, {})
        if targets:
            with torch.inference_mode():
                made = _gathered(run, forward, targets)
            counted = [(s.key, count(s.targets.get(placed.name, {}))) for s in forward.sequences]
            keys = [str(key) for key, items in counted for _ in range(items)]
            kept = {name: made[name].cpu() for name in (*objective.measured, *objective.reported) if name in made}
            return MeasuredGroup(kept, keys, forward.sequences)
    return MeasuredGroup({}, [], [])


def _gathered(run: EvaluatedRun, forward: PassOutput, targets: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """What the objective's head makes of a batch; the heads of those that it comes `after` run where it asks for what
    they hand on (`HeadInputs.outputs`), and their networks too."""
    others = {placed.name: placed for placed in run.acting if placed.name != run.objective.name}
    if not others:
        return run.head(HeadInputs.of_read(forward.read, dict(targets))).outputs
    model, batch, placed = run.loaded.model, forward.batch, run.objective
    networks = {name: model.network(name) for name in model.networks}
    passed = Pass(networks, {each.view: batch for each in run.acting})
    passed.keep_read(ViewKey(placed.network, placed.view), forward.read)

    def hand_on(name: str) -> dict[str, Tensor]:
        head, other = model.heads[name], others[name]
        inputs = HeadInputs(passed, ViewKey(other.network, other.view), batch.targets.get(name, {}), name)
        found: dict[str, Tensor] = head.embed(inputs) if isinstance(head, GlobalBatchHead) else head(inputs).outputs
        return found

    passed.outputs = _GatheredOutputs(others, hand_on)
    return run.head(HeadInputs(passed, ViewKey(placed.network, placed.view), dict(targets), placed.name)).outputs


def injected_knowledge(task: Task, sequences: Iterable[Sequence]) -> dict[str, dict[str, Any]]:
    """What the task's transforms brought into sequences, by the keys of their samples."""
    found: dict[str, dict[str, Any]] = {}
    for sequence in sequences:
        if knowledge := [each for transform in task.transforms for each in transform.injected(sequence)]:
            found.setdefault(str(sequence.key), {"knowledge": []})["knowledge"] += knowledge
    return found


class _GatheredOutputs(dict[str, dict[str, Tensor]]):
    """The outputs of heads by objective, each computed on demand."""

    def __init__(self, names: Container[str], make: Callable[[str], dict[str, Tensor]]) -> None:
        super().__init__()
        self.names, self.make = names, make

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __missing__(self, name: str) -> dict[str, Tensor]:
        self[name] = self.make(name)
        return self[name]


class ObjectiveTask(DownstreamTask[TuningOptions, ScoringOptions]):
    """Base of the tasks that their objective scores. A subclass adds baselines, counts and examples."""

    gathers = True

    def score(self, run: EvaluatedRun, corpus: Corpus, scoring: ScoringOptions) -> Result:
        objective = run.objective.objective
        self.prepare(objective, corpus, scoring)
        read = items(run, corpus, scoring.batch_size, scoring.limit)
        made, keys = measured_items(run, read, partial(self.counted, objective))
        account = run.take_account()  # of this pass alone: examples are read again
        if not made:
            raise WorkbenchError(self._unlabelled(run, corpus, scoring, account))
        samples = Samples(run, corpus, scoring.limit)
        baselines = self.baselines(run, objective, made, samples)
        classes = self.classes(objective, made)
        missed = {"classes never predicted": never_predicted(classes)} if classes else {}
        if others := self.unknown(objective, made):
            missed["gold of unknown classes"] = sum(others.values())
            _report_unknown(corpus, others)
        return Result(
            task=self.name,
            numbers=self.numbers(objective, made, scoring),
            counts=self.counts(objective, made, samples) | self.known_before(run, made, samples) | missed,
            classes=classes,
            variant=self.variant(objective, scoring),
            baselines={name: self.numbers(objective, other, scoring) for name, other in baselines.items()},
            examples=list(self._examples(run, corpus, scoring.limit)) if run.world.is_main else [],
            used=account["used"],
            dropped=account["dropped"],
            predictions=self.predictions(objective, made, keys),
        )

    def predict(self, run: EvaluatedRun, samples: list[Sample], number: int, predicting: Any) -> list[dict[str, Any]]:
        objective = run.objective.objective
        made, keys, sequences = measured_group(run, samples, number, partial(self.counted, objective))
        by_key = {str(sample["key"]): sample for sample in samples}
        lines = self.predictions(objective, made, keys).lines if made else []
        injected = injected_knowledge(run.task, sequences)
        return [
            {**self.answered(objective, line, by_key[line["key"]]), **injected.get(line["key"], {})} for line in lines
        ]

    def read_groups(self, run: EvaluatedRun, corpus: Corpus, size: int, limit: int | None) -> Iterator[list[Sample]]:
        return items(run, corpus, size, limit)

    def answered(self, objective: Any, line: dict[str, Any], sample: Sample) -> dict[str, Any]:
        """A line of `predictions` as `predict` shows it: by default without what is known of right answers alone."""
        return {name: value for name, value in line.items() if name not in (*SCORES, "gold")}

    def prepare(self, objective: Any, corpus: Corpus, scoring: ScoringOptions) -> None:
        """Prepare the objective for a corpus whose classes it need not know.

        Raises:
            WorkbenchError: it knows none of them.
        """

    def unknown(self, objective: Any, made: GatheredTensors) -> dict[str, int]:
        """The numbers of gold labels by class, of classes that the run does not know. They count as wrong."""
        return {}

    def counted(self, objective: Any, targets: Mapping[str, Any]) -> int:
        """The number of items in `predictions` for a sequence with these targets of the objective (numpy)."""
        return 0

    def predictions(self, objective: Any, made: GatheredTensors, keys: list[str]) -> EvaluationItems:
        """The predictions of the items; `keys` has the keys of their records. None if the task has no such items."""
        return EvaluationItems()

    def known_before(self, run: EvaluatedRun, made: GatheredTensors, samples: Iterable[Sample]) -> dict[str, int]:
        """How much of what is asked for the run may know without reading the texts; nothing where nobody can say."""
        return {}

    def needs(self, objective: Any) -> str:
        """The fields that a corpus must have, for the message if it lacks them."""
        raise NotImplementedError(f"{type(self).__name__} must define needs")

    def cause(self, objective: Any, account: Mapping[str, Mapping[str, int]]) -> str:
        """Why nothing is labelled in a corpus that may have all that is needed, and what to do, by what was `used` and
        `dropped`; "" if these don't show it."""
        return ""

    def _unlabelled(
        self, run: EvaluatedRun, corpus: Corpus, scoring: ScoringOptions, account: Mapping[str, Mapping[str, int]]
    ) -> str:
        """The message if nothing was measured: what the control, the limit or a transform removed, or what the corpus
        lacks."""
        objective, limit = run.objective.objective, scoring.limit
        first = limit is not None and limit < corpus.records
        within = f" in the first {limit} of its {corpus.records} records (--limit)" if first else ""
        control = run.loaded.recipe.control
        taken = ablated_by(control, run.parts)
        if taken:
            return (
                f"corpus {corpus.name!r}: nothing is left to measure{within}, as {taken}; evaluate without the control"
            )
        if cause := self.cause(objective, account):
            return f"corpus {corpus.name!r}{within}: {cause}"
        message = f"corpus {corpus.name!r} has no {self.needs(objective)}{within} (it has "
        more = "; raise --limit, or evaluate on one that has" if first else "; evaluate on one that has"
        return f"{message}{', '.join(corpus.manifest.fields)}){more}"

    def numbers(self, objective: Any, made: GatheredTensors, scoring: ScoringOptions) -> dict[str, float]:
        """The scores: by default those of a held-out pass."""
        measured: dict[str, float] = objective.measure(made)
        return measured

    def counts(self, objective: Any, made: GatheredTensors, samples: Iterable[Sample]) -> dict[str, int]:
        """The counts of a result."""
        raise NotImplementedError(f"{type(self).__name__} must define counts")

    def variant(self, objective: Any, scoring: ScoringOptions) -> str:
        """The conventions of the metric."""
        return ""

    def baselines(
        self, run: EvaluatedRun, objective: Any, made: GatheredTensors, samples: Iterable[Sample]
    ) -> dict[str, GatheredTensors]:
        """The outputs of each baseline for the same samples (`Samples`, which are read again each time)."""
        return {}

    def classes(self, objective: Any, made: GatheredTensors) -> dict[str, dict[str, float]]:
        """The numbers of each class by itself (`workbench.metrics.classes.by_class`), where there are classes."""
        return {}

    def example(self, objective: Any, sample: Sample, made: GatheredTensors) -> dict[str, Any]:
        """A sample as the task's panel shows it, with its own prediction."""
        raise NotImplementedError(f"{type(self).__name__} must define example")

    def _examples(self, run: EvaluatedRun, corpus: Corpus, limit: int | None) -> Iterator[dict[str, Any]]:
        """The first samples that are labelled, each read alone."""
        objective: Objective = run.objective.objective
        alone, shown = replace(run, world=World()), 0
        for samples in items(run, corpus, 1, limit, LOOKED_AT):
            made = measured(alone, [samples])
            if made and shown < EXAMPLES:
                shown += 1
                yield self.example(objective, samples[0], made)


def _report_unknown(corpus: Corpus, others: Mapping[str, int]) -> None:
    """Log the classes that the run was not trained on."""
    shown = ", ".join(f"{name} ({count})" for name, count in list(others.items())[:LISTED])
    logger.warning(
        "corpus %r has %d gold labels of %d classes that the run does not know, and they count as wrong: %s%s",
        *(corpus.name, sum(others.values()), len(others), shown, ", ..." if len(others) > LISTED else ""),
    )


@dataclass(frozen=True)
class Samples:
    """The scored samples, read again at each iteration and not stored."""

    run: EvaluatedRun
    corpus: Corpus
    limit: int | None

    def __iter__(self) -> Iterator[Sample]:
        return (sample for group in items(self.run, self.corpus, 1, self.limit) for sample in group)


def items(
    run: EvaluatedRun, corpus: Corpus, size: int, records: int | None, limit: int | None = None
) -> Iterator[list[Sample]]:
    """What the run's task reads of a corpus, `size` items at once: each once, those of the first records, or at most
    `limit`."""
    window = window_of(run.task, [corpus])
    return sample_pass([corpus], size=size, unit=run.task.builder.unit, window=window, limit=limit, records=records)
