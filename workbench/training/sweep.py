"""Sweeps: trainings of a recipe with values that optuna chooses, one run for each trial and seed.

    FOLDER/sweep.json              what is swept; another command is refused here
    FOLDER/study.log               optuna's journal: the values and the results of all trials
    FOLDER/trial-3-seed-0/         a run
    FOLDER/trials.json             the table, best first

A trial's value is the best value of the metric over the held-out passes, the mean over its seeds. The run of the first
seed is stopped at a pass in which it is worse than the median of the other trials (optuna's `MedianPruner`).
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import statistics
from collections.abc import Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.core.errors import MachineError, WorkbenchError
from workbench.core.files.drafts import write_text
from workbench.core.files.lock import locked
from workbench.core.files.yaml_values import assignments
from workbench.core.packages import library
from workbench.recipe.trees import recipe_from_dict, with_overrides
from workbench.runs.folder import recipe_values
from workbench.runs.metric_tables import HELD_OUT
from workbench.runs.metrics_file import Record, read_metrics
from workbench.runs.names import is_run
from workbench.training.callbacks import STOP, Callback, Stop
from workbench.training.early_stopping import held_out_value
from workbench.training.held_out import improves
from workbench.training.pretrain import pretrain
from workbench.training.sweep_space import check_space, distributions, overrides, read_space

if TYPE_CHECKING:
    from optuna import Study, Trial

logger = logging.getLogger(__name__)
SETTINGS, JOURNAL, TRIALS = "sweep.json", "study.log", "trials.json"
WAITING = 4
"""Trials that finish before others are stopped early: the median of fewer says little."""


@dataclass(frozen=True)
class SweepSettings:
    """What a sweep is: trials may be added, the rest stays.

    Attributes:
        recipe: its values (`as_tree`).
        over: `KEY=LOW..HIGH` and `KEY=[A, B]`.
        metric: a held-out metric.
        seeds: runs of a trial, with the seeds from the recipe's on.
    """

    recipe: dict[str, Any]
    over: list[str]
    metric: str
    seeds: int = 1


@dataclass(frozen=True)
class TrialResult:
    """A trial.

    Attributes:
        values: by key.
        state: as optuna has it: `complete`, `pruned` (stopped early), `fail` (such as a loss that is not finite).
        mean: of the metric over the seeds; of a trial that was stopped, the last value.
        runs: the folders, by seed.
    """

    number: int
    values: dict[str, Any]
    state: str
    mean: float | None
    runs: list[str]


def sweep(settings: SweepSettings, folder: Path, trials: int, jobs: int = 1) -> list[TrialResult]:
    """Train until there are `trials` trials; returns all, the best first. After a kill, the trials that were under way
    resume.

    Args:
        jobs: trials at a time; several are processes of their own.

    Raises:
        WorkbenchError: a value that the recipe refuses, a metric that it cannot have, another sweep in the folder, or
            every trial failed.
    """
    library("optuna", "sweep", "sweeps")
    recipe, space = recipe_from_dict(settings.recipe), read_space(settings.over)
    check_space(recipe, space)
    if not recipe.train.evaluate_every or not any(task.held_out for task in recipe.tasks.values()):
        raise WorkbenchError(
            f"a sweep compares {settings.metric} of held-out passes: set held_out corpora in a task and "
            "train.evaluate_every"
        )
    with locked(folder):
        _settle(folder, settings)
        study = _study(folder, settings)
        begun = [trial.number for trial in study.trials if not trial.state.is_finished()]
        for number in begun:
            logger.info("trial %d resumes", number)
        new = max(0, trials - len(study.trials))
        _train(folder, _numbers(study, settings, begun, new), jobs)
        return _ranked(folder, settings)


def _numbers(study: Study, settings: SweepSettings, begun: list[int], new: int) -> Iterator[int]:
    """The trials to train, each with its values drawn when it is asked for: from the results so far, and a seed."""
    from optuna.samplers import TPESampler

    yield from begun
    for _ in range(new):
        study.sampler = TPESampler(seed=settings.recipe["seed"] + len(study.trials))
        yield study.ask(distributions(read_space(settings.over))).number


def _train(folder: Path, numbers: Iterator[int], jobs: int) -> None:
    if jobs == 1:
        for number in numbers:
            run_trial(folder, number)
        return
    spawn = multiprocessing.get_context("spawn")  # a process for each trial, which takes its memory with it
    with ProcessPoolExecutor(jobs, mp_context=spawn, max_tasks_per_child=1) as pool:
        under_way: set[Future[None]] = set()
        while True:
            under_way |= {pool.submit(run_trial, folder, n) for n in islice(numbers, jobs - len(under_way))}
            if not under_way:
                return
            done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
            for each in done:
                each.result()


def run_trial(folder: Path, number: int) -> None:
    """Train the runs of a trial, or resume them, and store its value in the study."""
    from optuna import Trial
    from optuna.trial import TrialState

    settings = SweepSettings(**json.loads((folder / SETTINGS).read_text("utf-8")))
    study = _study(folder, settings)
    frozen = study.trials[number]
    recipe = with_overrides(recipe_from_dict(settings.recipe), assignments(_values(settings, frozen.params)))
    pruning, results = Pruning(Trial(study, frozen._trial_id), settings.metric), []
    try:
        for seed, run in enumerate(_runs(folder, settings, number), recipe.seed):
            first = [pruning] if seed == recipe.seed else []
            pretrain(replace(recipe, seed=seed), run, callbacks=first)
            results.append(_best(run, settings.metric))
            if pruning.stopped:
                study.tell(number, state=TrialState.PRUNED)
                return
    except (MachineError, MetricError):
        raise
    except WorkbenchError as error:
        logger.warning("trial %d failed: %s", number, error)
        study.tell(number, state=TrialState.FAIL)
        return
    study.tell(number, statistics.fmean(results))


class MetricError(WorkbenchError):
    """The runs of a sweep do not have its metric."""


class Pruning(Callback):
    """Stops a run at a held-out pass in which the metric is worse than the median of the other trials."""

    def __init__(self, trial: Trial, metric: str) -> None:
        self.trial, self.metric, self.stopped = trial, metric, False

    def on_evaluation(self, step: int, metrics: Record) -> Stop | None:
        try:
            _, value = held_out_value(metrics, self.metric, "the held-out metrics (--metric)")
        except WorkbenchError as error:
            raise MetricError(str(error)) from error
        self.trial.report(value, step)
        self.stopped = self.trial.should_prune()
        return STOP if self.stopped else None


def _study(folder: Path, settings: SweepSettings) -> Study:
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(
        study_name="sweep",
        storage=JournalStorage(JournalFileBackend(str(folder / JOURNAL))),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=WAITING),
        direction="minimize" if improves(settings.metric, 0.0, 1.0) else "maximize",
        load_if_exists=True,
    )


def _settle(folder: Path, settings: SweepSettings) -> None:
    """Write what the sweep is, or compare it with what is there."""
    place, now = folder / SETTINGS, json.loads(json.dumps(asdict(settings), default=str))
    if not place.is_file():
        write_text(place, json.dumps(now, indent=1) + "\n")
        return
    old, new = _flat(json.loads(place.read_text("utf-8"))), _flat(now)
    differing = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    if differing:
        listed = "\n".join(f"  {key}: {old.get(key)} -> {new.get(key)}" for key in differing)
        raise WorkbenchError(
            f"{folder} holds another sweep; these values differ:\n{listed}\nResume with the old values, or choose "
            "another folder (--output)"
        )


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a sweep by key, those of the recipe by their dotted keys."""
    own = {key: value for key, value in settings.items() if key != "recipe"}
    return own | recipe_values(recipe_from_dict(settings["recipe"]))


def _values(settings: SweepSettings, drawn: Mapping[str, Any]) -> dict[str, Any]:
    return overrides(read_space(settings.over), dict(drawn))


def _runs(folder: Path, settings: SweepSettings, number: int) -> list[Path]:
    first = settings.recipe["seed"]
    return [folder / f"trial-{number}-seed-{seed}" for seed in range(first, first + settings.seeds)]


def _best(run: Path, metric: str) -> float:
    """The best value of the metric over the held-out passes of a run."""
    name = metric if metric.startswith(HELD_OUT) else f"{HELD_OUT}{metric}"
    best: float | None = None
    for value in (record[name] for record in read_metrics(run) if name in record):
        best = value if improves(name, value, best) else best
    if best is None:
        raise WorkbenchError(f"{run} has no finite {name}")
    return best


def _ranked(folder: Path, settings: SweepSettings) -> list[TrialResult]:
    """All trials, the best first, those without a value last; also written to the folder."""
    study, found = _study(folder, settings), []
    for trial in study.trials:
        runs = [str(run) for run in _runs(folder, settings, trial.number) if is_run(run)]
        values, state = _values(settings, trial.params), trial.state.name.lower()
        found.append(TrialResult(trial.number, values, state, trial.value, runs))
    if not any(trial.state == "complete" for trial in found):
        raise WorkbenchError(f"no trial of {folder} has a value; the log of each run says why it failed")
    sign = 1 if study.direction.name == "MINIMIZE" else -1
    found.sort(key=lambda trial: (trial.state != "complete", sign * (trial.mean if trial.mean is not None else 0.0)))
    write_text(folder / TRIALS, json.dumps([asdict(trial) for trial in found], indent=1) + "\n")
    return found
