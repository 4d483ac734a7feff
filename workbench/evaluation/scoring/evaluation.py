"""One evaluation, whatever the task: the run opened, scored, its result written and shown."""

from __future__ import annotations

import hashlib
import os
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from workbench.components.build_context import noted
from workbench.components.error_context import ErrorContext
from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import check_writable
from workbench.core.local_copies import with_urls
from workbench.core.processes.distributed import World, distributed
from workbench.corpora.corpus import Corpus
from workbench.evaluation.options import MeasuringOptions, Scoring
from workbench.evaluation.scoring.downstream_task import DownstreamTask
from workbench.evaluation.scoring.evaluated_run import EvaluatedRun, OpenedRun
from workbench.evaluation.scoring.finite_scores import finite_scores
from workbench.evaluation.scoring.learning_progress import unlearned
from workbench.evaluation.scoring.result import MAX_NAME, Result, corpus_input
from workbench.evaluation.scoring.task_finder import note_own_code
from workbench.evaluation.scoring.training_overlap import warn_overlap
from workbench.interop.run_or_checkpoint import name_at
from workbench.runs.folder import keep_panels
from workbench.runs.metrics_file import results_in
from workbench.runs.names import EVALUATIONS, is_run
from workbench.training.arithmetic import Arithmetic, autocast_dtype, computing, matmul_of
from workbench.training.failures import named_failures

NEED_LESS = "Lower --batch-size, or have the network compute in 16 bits (--precision bfloat16)"
AGAIN = "Once that is fixed, give the same command again"


def evaluate(task: DownstreamTask[Any, Any], scoring: MeasuringOptions, *, show: bool = True) -> Result:
    """Score a run on a corpus. The main rank writes the result (`results_of`). Some tasks score a linker or vectors.

    Several ranks share the work of a task that `gathers`; that of others the main rank does alone.

    Args:
        show: print the tables of the result, on the main rank.

    Raises:
        WorkbenchError: a wrong input; the run reads knowledge, and the corpus has none linked; or nothing was measured.
        MachineError: no memory was left, or another rank ended.
    """
    with distributed() as world, named_failures(world, NEED_LESS, AGAIN):
        if task.gathers:
            return _evaluated(task, scoring, world, show)
        return world.from_main(partial(_evaluated, task, scoring, World(device=world.device), show))


def _evaluated(task: DownstreamTask[Any, Any], scoring: MeasuringOptions, world: World, show: bool) -> Result:
    if world.is_main:
        name = f"{task.name}-{Path(scoring.corpus).name}"[:MAX_NAME]
        check_writable(results_of(scoring.run) / f"{name}.json")
    corpus = Corpus.open(scoring.corpus)
    precision = scoring.precision if isinstance(scoring, Scoring) else "float32"
    dtype = autocast_dtype(precision, world.device, "--precision")
    with noted() as opened, computing(Arithmetic(world.device, dtype, matmul_of("auto", dtype))):
        run = _opened(task, scoring, world)
        run.check_linked(corpus)
        with torch.autocast(world.device.type, enabled=False):  # one scope, so that weights are cast once
            own = note_own_code(task)
            context = ErrorContext(f"task {own}") if own else nullcontext()
            with context, finite_scores(task.name, run, precision):
                result = task.score(run, corpus, scoring)
    _check_measured(result, corpus)
    if isinstance(run, EvaluatedRun) and result.used is None:
        result.used, result.dropped = run.take_account().values()
    result.control = scoring.control if isinstance(scoring, Scoring) else None
    result.panels = list(task.panels)
    read = {kind: {**run.read.get(kind, {}), **opened.get(kind, {})} for kind in {**run.read, **opened}}
    result.inputs = {"checkpoint": run.checkpoint, "corpus": corpus_input(corpus), "read": read, **result.inputs}
    result.options = scoring.chosen()
    result.seed = run.loaded.recipe.seed if isinstance(run, EvaluatedRun) and is_run(scoring.run) else None
    if world.is_main:
        result.seen = warn_overlap(scoring.run, corpus) if task.scored else []
        if isinstance(run, EvaluatedRun) and is_run(scoring.run) and task.tuning is not None:
            result.unlearned = unlearned(scoring.run, run.loaded.recipe, run.objective.name)
        result.take_intervals()
        if scoring.predictions is not None:
            task.write_predictions(scoring.predictions, result)
        result.write(results_of(scoring.run))
        if is_run(scoring.run):
            keep_panels(scoring.run, result.panels)
            task.draw(run, corpus, scoring)
        if show:
            result.show(folder=results_of(scoring.run))
    return result


def _opened(task: DownstreamTask[Any, Any], scoring: MeasuringOptions, world: World) -> OpenedRun:
    opened: Any = task.open(scoring)
    if isinstance(opened, EvaluatedRun) and isinstance(scoring, Scoring):
        return opened.on(world, scoring.precision)
    return replace(opened, world=world)


def _check_measured(result: Result, corpus: Corpus) -> None:
    """
    Raises:
        WorkbenchError: the result is of nothing, whatever its numbers are.
    """
    if not next(iter(result.counts.values()), 0):
        counted = ", ".join(f"{value} {name}" for name, value in result.counts.items())
        raise WorkbenchError(
            f"{result.task} has measured nothing of {corpus.place}; its counts: {counted or 'none'}. Evaluate on "
            "records with the fields that the task reads. (A result's first count is the number of measured items.)"
        )


def results_of(place: Path) -> Path:
    """The folder of results: `evaluations/` of the run, or `evaluations/NAME` for a checkpoint. Where the results of
    another checkpoint of that name lie, NAME ends in a checksum of the place."""
    if is_run(place):
        return place / EVALUATIONS
    folder, own = Path(EVALUATIONS) / name_at(place), os.path.abspath(with_urls(str(place)))
    of_others = {str((result.get("inputs") or {}).get("checkpoint", "")) for result in results_in(folder)} - {""}
    if not of_others or own in map(os.path.abspath, of_others):
        return folder
    return folder.with_name(f"{folder.name}-{hashlib.sha256(own.encode()).hexdigest()[:8]}")
