"""The Python API: fine-tuning, evaluation, comparison and reports of runs (`import workbench`, docs/python.md).

`workbench.api` has the functions before them. A run is given as a path, a URL, or what the functions return.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, overload

from workbench.api import Overrides, Place
from workbench.components.trust import allow
from workbench.core.errors import WorkbenchError
from workbench.core.files.stores import path_at
from workbench.core.files.urls import url_of
from workbench.core.local_copies import place_of
from workbench.core.options.arguments import checked
from workbench.core.options.bounds import Count, OutputPlace, Seed, Word
from workbench.core.options.command import options_from_python
from workbench.core.options.outputs import check_outputs
from workbench.core.options.path_options import as_paths
from workbench.core.options.values import check
from workbench.evaluation.analysis.comparison import SAMPLES, Comparisons, Samples, local_side
from workbench.evaluation.analysis.comparison import compare as compared
from workbench.report.introduction import read_opening
from workbench.report.page import write_report as write_page
from workbench.report.panels import panel_names
from workbench.report.run import Run, load_run
from workbench.runs.names import REPORT
from workbench.runs.output_places import OutputFile
from workbench.runs.stored_run import fetched_run, opened_run

if TYPE_CHECKING:
    from workbench.evaluation.finetuning.seed_runs import SeedStatistics
    from workbench.evaluation.scoring.downstream_task import DownstreamTask
    from workbench.evaluation.scoring.result import Result
    from workbench.keywords import Evaluate, Finetune
    from workbench.training.callbacks import Callback


@overload
def finetune(
    run: Place,
    task: str,
    corpus: Place,
    output: Place | None = None,
    *,
    callbacks: Iterable[Callback] = (),
    trust: bool = False,
    **options: Unpack[Finetune],
) -> Run: ...
@overload
def finetune(
    run: Place,
    task: str,
    corpus: Place,
    output: Place | None = None,
    *,
    seeds: int,
    score: Overrides = (),
    callbacks: Iterable[Callback] = (),
    trust: bool = False,
    **options: Unpack[Finetune],
) -> SeedStatistics: ...
@overload
def finetune(
    run: Place,
    task: DownstreamTask[Any, Any],
    corpus: Place,
    output: Place | None = None,
    *,
    callbacks: Iterable[Callback] = (),
    trust: bool = False,
    **options: Any,
) -> Run: ...
def finetune(
    run: Place,
    task: str | DownstreamTask[Any, Any],
    corpus: Place,
    output: Place | None = None,
    *,
    seeds: int | None = None,
    score: Overrides = (),
    callbacks: Iterable[Callback] = (),
    trust: bool = False,
    **options: Any,
) -> Run | SeedStatistics:
    """Fine-tune a run, or a Hugging Face checkpoint, on a downstream task.

        >>> finetune("runs/tiny-text", "classify", "corpora/hours", "runs/hours", epochs=0.5)
        <Run runs/hours: step 2, ... evaluations>

    Args:
        task: its name (`workbench downstream`), an import path, or an object of its class.
        output: the new run; by default RUN-TASK.
        seeds: the number of runs, 2 or more, each with a seed of its own; they are evaluated on `held_out`.
        score: options of these evaluations, a mapping.
        options: those of `workbench finetune TASK`, such as `epochs`, `lr`, `held_out`. `overrides` is a mapping of
            dotted keys to values.

    Returns:
        The run. With `seeds` the statistics: `.runs` has the numbers of each run, `.summary()` means and deviations.

    Raises:
        WorkbenchError: no such task or option, or the task does not fit the run.
    """
    from workbench.evaluation.finetuning.finetuning import fine_tune
    from workbench.evaluation.finetuning.seed_runs import fine_tune_seeds

    folder = fetched_run(_place_of(run))
    found = _task(task, folder, trust)
    if found.tuning is None:
        raise WorkbenchError(f"the task {found.name} trains nothing; measure a pretrained run with workbench.evaluate")
    places = {"run": folder, "corpus": corpus, "output": output}
    if seeds is None:
        if score:
            raise WorkbenchError("score has options of the evaluations that `seeds` makes; for one run use evaluate")
        return load_run(
            fine_tune(found, options_from_python(found.tuning, **places, trust=trust, **options), callbacks)
        )
    if check(Count, seeds, "seeds") < 2:
        raise WorkbenchError("seeds = 1; allowed: 2 or more. Leave it out for a single run")
    options |= {"seeds": seeds, "score": score}
    tuning = options_from_python(found.tuning, **places, trust=trust, **options)
    return fine_tune_seeds(found, tuning, callbacks, show=False)


@overload
def evaluate(run: Place, task: str, corpus: Place, *, trust: bool = False, **options: Unpack[Evaluate]) -> Result: ...
@overload
def evaluate(
    run: Place, task: DownstreamTask[Any, Any], corpus: Place, *, trust: bool = False, **options: Any
) -> Result: ...
def evaluate(
    run: Place, task: str | DownstreamTask[Any, Any], corpus: Place, *, trust: bool = False, **options: Any
) -> Result:
    """Evaluate a run, or a Hugging Face checkpoint, on a downstream task; the result also goes into `evaluations/`.

        >>> result = evaluate("runs/hours", "classify", "corpora/hours")
        >>> 0 <= result["accuracy"] <= 1, len(result.predictions), [*result.baselines]
        (True, 120, [...])

    Args:
        task: as of `finetune`.
        options: those of `workbench evaluate TASK`, such as `limit`, `control`, `batch_size`.

    Returns:
        The numbers by name (`result["accuracy"]`), with `.table()` for people, `.predictions` by item, `.baselines` and
        `.intervals`.

    Raises:
        WorkbenchError: no such task or option, or the task does not fit the run.
    """
    from workbench.evaluation.scoring.evaluation import evaluate as evaluated

    with opened_run(_place_of(run)) as folder:
        found = _task(task, folder, trust)
        places = {"run": folder, "corpus": corpus}
        given = {"trust": trust} if trust else {}  # what is no run has no such option
        return evaluated(found, options_from_python(found.scoring, **places, **given, **options), show=False)


@checked
def compare(
    *sides: Place | Sequence[Place] | SeedStatistics,
    samples: Samples = SAMPLES,
    seed: Seed = 0,
    task: Word | None = None,
    across_variants: bool = False,
) -> Comparisons:
    """Test whether runs differ from the first one on the items that both were evaluated on, as `workbench compare`.

        >>> result = evaluate("runs/hours", "classify", "corpora/hours")
        >>> compare("runs/hours", "runs/hours")[0].differences["accuracy"].difference
        0.0

    Args:
        sides: two or more: runs, results (`evaluations/NAME.json`), files of predictions. A list, or what
            `finetune(seeds=...)` returns, is a side of several seeds.
        samples: the number of bootstrap samples.
        task: compares only results of this task.
        across_variants: allows results with different variants of a metric.

    Returns:
        One comparison for each other side, task and corpus, with `.differences` by number and `.table()`.

    Raises:
        WorkbenchError: a side has no results, or they are not of the same items.
    """
    if len(sides) < 2:
        raise WorkbenchError(f"compare takes two sides or more; found {len(sides)}")
    return compared(
        [_side(side) for side in sides], samples=samples, seed=seed, task=task, across_variants=across_variants
    )


def _side(side: Place | Sequence[Place] | SeedStatistics) -> str:
    """A side as the command line has it: the paths of its seeds, joined by commas."""
    seeds: Any = getattr(side, "runs", side) if not isinstance(side, Run) else side
    listed = [seeds] if isinstance(seeds, str | os.PathLike) else list(seeds)
    return ",".join(local_side(_place_of(each)) for each in listed)


@checked
def write_report(
    runs: Place | Sequence[Place],
    output: Place | None = None,
    *,
    title: str = "",
    opening: Place | None = None,
    trust: bool = False,
) -> Path | str:
    """Write one HTML page about runs: curves, results next to baselines and controls, figures. Returns the page.

        >>> write_report(["runs/tiny-text", "runs/hours"], "report.html")
        PosixPath('report.html')

    Args:
        runs: run folders, and `evaluations/NAME` of what is no run.
        output: by default `report.html` in the first run.
        opening: a JSON file with the chapters that stand before the results.
        trust: whether the panels that a run brings along may be run.

    Raises:
        WorkbenchError: one is no run, its panels are not trusted, or the output belongs to a run or a corpus.
    """
    places = [_place_of(run) for run in ([runs] if isinstance(runs, str | os.PathLike) else runs)]
    if not places:
        raise WorkbenchError("a report needs at least one run; none is given")
    with ExitStack() as stack:
        folders = [stack.enter_context(opened_run(place)) for place in places]
        path = None
        if output is not None:
            path = as_paths(
                OutputFile, check(OutputPlace, url_of(output) or os.fspath(output), "output"), "output", stack
            )
        written = _written_report(folders, path, title, opening, trust)
    return written if place_of(written) == str(written) else place_of(written)


def _written_report(folders: list[Path], output: Path | None, title: str, opening: Place | None, trust: bool) -> Path:
    """As `write_report`, about local runs."""
    path = output if output is not None else folders[0] / REPORT
    chapters = None if opening is None else path_at(opening)
    loaded = [load_run(folder) for folder in folders]
    check_outputs(
        {"output": OutputFile},
        {"output": path, "runs": folders, "opening": chapters},
        {"output": "output", "runs": "runs", "opening": "opening"},
    )
    for run in loaded:
        allow(panel_names(run), run.folder, str(run.folder), trust=trust)
    write_page(loaded, path, title, read_opening(chapters) if chapters is not None else ())
    return path


def _task(task: str | DownstreamTask[Any, Any], run: Path, trust: bool) -> DownstreamTask[Any, Any]:
    from workbench.evaluation.scoring.task_finder import find_task
    from workbench.runs.names import is_run

    if not isinstance(task, str):
        return task
    return find_task(task, trust=trust, run=run if is_run(run) else None)


def _place_of(run: Place) -> str:
    if not isinstance(run, str | os.PathLike):
        raise WorkbenchError(
            f"the run is of type {type(run).__name__}; allowed: the folder of a run or of a Hugging Face checkpoint, "
            "or what pretrain, finetune and open_run return. A model that was loaded has its folder in `place`"
        )
    return place_of(os.fspath(run))
