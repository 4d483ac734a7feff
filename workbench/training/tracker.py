"""Experiment trackers (`train.trackers`): the metrics of a run in TensorBoard and other libraries."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar

from workbench.components.building import build
from workbench.components.kinds import KINDS
from workbench.core.packages import extra
from workbench.runs.metrics_file import Record
from workbench.training.callbacks import Callback
from workbench.training.failures import Spared


@dataclass(frozen=True)
class TrackedRun:
    """The run that a tracker follows.

    Attributes:
        name: the name of its folder with the start of the id, which no other run has.
        id: 32 hexadecimal digits that a run keeps when it resumes from a checkpoint.
        folder: of the run.
        step: of the checkpoint that the run resumes from; 0 for a new run.
        parameters: the values of its recipe, by their dotted keys.
    """

    name: str
    id: str
    folder: Path
    step: int
    parameters: Mapping[str, Any]


class Tracker(ABC):
    """Base class of trackers. Arguments of `__init__` are options of the recipe.

    The main rank calls `begin` once, `log` for each line of metrics.jsonl, and `end`. An error in one of them is logged
    and the run continues without the tracker. Of a killed run, lines after its last checkpoint come twice, with equal
    values.

    Attributes:
        library: the module without which a run with this tracker is refused.
    """

    library: ClassVar[str]

    @abstractmethod
    def begin(self, run: TrackedRun) -> None:
        """Open the tracker's own run: a new one, or that of `run.id`, if there is one."""

    @abstractmethod
    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add the numbers of a step, all finite."""

    @abstractmethod
    def end(self, failed: bool) -> None:
        """Close the tracker's run; `failed` says that an error or a signal ended the training."""


def make_trackers(specs: Iterable[str | Mapping[str, Any]]) -> list[Tracker]:
    """The trackers of `train.trackers`. Nothing is opened.

    Raises:
        WorkbenchError: there is no such tracker or option, or its library is not installed.
    """
    made: list[Tracker] = [build("tracker", spec, f"train.trackers[{i}]") for i, spec in enumerate(specs)]
    for tracker in made:
        with extra("trackers", f"train.trackers: the tracker {_name(tracker)!r} needs"):
            if find_spec(tracker.library) is None:
                raise ModuleNotFoundError(name=tracker.library)
    return made


def _name(tracker: Tracker) -> str:
    return KINDS["tracker"].name(type(tracker))


class Trackers(Callback, AbstractContextManager["Trackers"]):
    """The trackers of a run, as one callback of the main rank.

    Args:
        spared: catches their failures, which do not end a run.
    """

    def __init__(self, trackers: Iterable[Tracker], run: TrackedRun, spared: Spared) -> None:
        self.trackers, self.spared = list(trackers), spared
        self._each(lambda tracker: tracker.begin(run))

    def on_step(self, step: int, metrics: Record) -> None:
        if metrics:
            self.on_evaluation(step, metrics)

    def on_evaluation(self, step: int, metrics: Record) -> None:
        finite = {name: value for name, value in metrics.items() if name != "step" and math.isfinite(value)}
        self._each(lambda tracker: tracker.log(step, finite))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._each(lambda tracker: tracker.end(kind is not None))

    def _each(self, call: Callable[[Tracker], None]) -> None:
        for tracker in self.trackers:
            if (what := f"tracker {_name(tracker)}") not in self.spared.failed:
                with self.spared(what):
                    call(tracker)
