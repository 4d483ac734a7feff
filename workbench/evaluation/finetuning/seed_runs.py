"""Fine-tuning with several seeds: a run each, evaluated alike; the mean and the spread of every number.

What the seed changes is the order of the samples, dropout and the weights of the new head (Dodge et al.,
arXiv:2002.06305: on small sets it moves scores by more than most methods do).
"""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from rich.table import Table

from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import write_text
from workbench.core.files.urls import LOCAL_ONLY
from workbench.core.html_table import html_of
from workbench.core.processes.distributed import distributed
from workbench.core.terminal import Terminal
from workbench.evaluation.finetuning.finetuning import recipe_of, run_folder
from workbench.evaluation.options import Tuning, scoring_of
from workbench.evaluation.scoring.downstream_task import DownstreamTask
from workbench.evaluation.scoring.evaluation import evaluate
from workbench.evaluation.scoring.result import Result
from workbench.metrics.baselines import against
from workbench.runs.names import SEEDS
from workbench.training.callbacks import Callback
from workbench.training.pretrain import pretrain


@dataclass(frozen=True)
class SeedStatistics:
    """The numbers of several runs of one task on a corpus, by the run's folder.

    `options` are the options of the evaluations that differ from their default. `baselines` has the means of the
    baselines by name.
    """

    task: str
    corpus: str
    runs: dict[str, dict[str, float]]
    options: dict[str, Any] = field(default_factory=dict)
    baselines: dict[str, dict[str, float]] = field(default_factory=dict)
    bounds: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, results: Mapping[str, Result], corpus: str) -> SeedStatistics:
        """The statistics of results by the run's folder."""
        first = next(iter(results.values()))
        runs = {run: result.numbers for run, result in results.items()}
        baselines = {
            name: _means([result.baselines[name] for result in results.values()])
            for name in first.baselines
            if all(name in result.baselines for result in results.values())
        }
        return cls(first.task, corpus, runs, first.options, baselines, first.bounds)

    def summary(self) -> dict[str, dict[str, float]]:
        """`mean` and `deviation` (of the sample, n - 1) over the runs, for each number that all runs have."""
        every = list(self.runs.values())
        shared = [name for name in every[0] if all(name in numbers for numbers in every)]
        found = {name: [numbers[name] for numbers in every] for name in shared}
        return {name: {"mean": statistics.fmean(v), "deviation": statistics.stdev(v)} for name, v in found.items()}

    def table(self) -> Table:
        """A row per number, a column per run and per baseline."""
        options = "".join(f", {name} {value}" for name, value in self.options.items())
        beneath = against({name: of["mean"] for name, of in self.summary().items()}, self.baselines, self.bounds)
        table = Table(
            title=f"{self.task}, {len(self.runs)} seeds{options}", caption=f"mean: {beneath}" if beneath else None
        )
        for column in ("", "mean", "deviation", *(Path(run).name for run in self.runs), *self.baselines):
            table.add_column(column, justify="right" if column else "left")
        for name, of in self.summary().items():
            own = (f"{numbers[name]:.4g}" for numbers in self.runs.values())
            others = (f"{numbers[name]:.4g}" if name in numbers else "" for numbers in self.baselines.values())
            table.add_row(name, f"{of['mean']:.4g}", f"{of['deviation']:.2g}", *own, *others)
        return table

    def _repr_html_(self) -> str:
        return html_of(self.table())

    def save(self, path: Path) -> None:
        """Write the statistics as JSON."""
        record = {**dataclasses.asdict(self), "numbers": self.summary()}
        write_text(path, json.dumps(record, indent=1, ensure_ascii=False) + "\n")


def fine_tune_seeds(
    task: DownstreamTask[Any, Any], tuning: Tuning, callbacks: Iterable[Callback] = (), *, show: bool = True
) -> SeedStatistics:
    """Fine-tune with `tuning.seeds` seeds, from the recipe's on, and evaluate each run on `tuning.held_out`.

    The runs go to the folder that one run would have, with -seed-N added; the table lies next to them as -seeds.json.
    If it is started again, it resumes. `show` prints the results and the table.

    Raises:
        WorkbenchError: nothing to evaluate on, or as `fine_tune` and `evaluate`.
    """
    if tuning.held_out is None:
        raise WorkbenchError(
            f"--seeds {tuning.seeds} evaluates the runs, and no corpus is named for it; pass --held-out"
        )
    score = partial(scoring_of, task.scoring, tuning.score or (), corpus=tuning.held_out, trust=tuning.trust)
    score(run=tuning.run)  # wrong options are reported before the training
    folder = run_folder(task, tuning)
    if isinstance(folder, str):
        raise WorkbenchError(f"--output {folder}: with --seeds the runs are written to {LOCAL_ONLY}")
    recipe = recipe_of(task, tuning)
    if not recipe.train.evaluate_every:  # the corpus is read after the trainings alone
        own = {name: dataclasses.replace(spec, held_out=[]) for name, spec in recipe.tasks.items()}
        recipe = dataclasses.replace(recipe, tasks=own)
    callbacks, results = list(callbacks), {}
    with distributed() as world:  # joined once for all runs
        for seed in range(recipe.seed, recipe.seed + tuning.seeds):
            place = folder.with_name(f"{folder.name}-seed-{seed}")
            run = pretrain(dataclasses.replace(recipe, seed=seed), place, callbacks=callbacks)
            results[str(run)] = evaluate(task, score(run=run), show=show)
        statistics_of_runs = SeedStatistics.of(results, tuning.held_out)
        world.from_main(partial(statistics_of_runs.save, folder.with_name(folder.name + SEEDS)))
        if show and world.is_main:
            Terminal().print(statistics_of_runs.table())
    return statistics_of_runs


def _means(every: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The means of the numbers that all of them have."""
    shared = [name for name in every[0] if all(name in numbers for numbers in every)]
    return {name: statistics.fmean(numbers[name] for numbers in every) for name in shared}
