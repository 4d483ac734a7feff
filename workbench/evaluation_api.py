"""The Python API: fine-tuning, evaluation and reports of runs (`import workbench`, docs/python.md).

`workbench.api` has the functions before them. A run is given as a path, a URL, or what the functions return.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, overload

from workbench.api import Place
from workbench.components.trust import allow
from workbench.core.errors import WorkbenchError
from workbench.core.files.stores import path_at
from workbench.core.files.urls import url_of
from workbench.core.local_copies import place_of
from workbench.core.options.arguments import checked
from workbench.core.options.bounds import OutputPlace
from workbench.core.options.command import options_from_python
from workbench.core.options.outputs import check_outputs
from workbench.core.options.path_options import as_paths
from workbench.core.options.values import check
from workbench.report.introduction import read_opening
from workbench.report.page import write_report as write_page
from workbench.report.panels import panel_names
from workbench.report.run import Run, load_run
from workbench.runs.names import REPORT
from workbench.runs.output_places import OutputFile
from workbench.runs.stored_run import fetched_run, opened_run

if TYPE_CHECKING:
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
    callbacks: Iterable[Callback] = (),
    trust: bool = False,
    **options: Any,
) -> Run:
    """Fine-tune a run, or a Hugging Face checkpoint, on a downstream task.

        >>> finetune("runs/tiny-text", "classify", "corpora/hours", "runs/hours", epochs=0.5)
        <Run runs/hours: step 2, ... evaluations>

    Args:
        task: its name (`workbench downstream`), an import path, or an object of its class.
        output: the new run; by default RUN-TASK.
        options: those of `workbench finetune TASK`, such as `epochs`, `lr`, `held_out`. `overrides` is a mapping of
            dotted keys to values. For several seeds, call it once for each with `overrides={"seed": n}`.

    Raises:
        WorkbenchError: no such task or option, or the task does not fit the run.
    """
    from workbench.evaluation.finetuning.finetuning import fine_tune

    folder = fetched_run(_place_of(run))
    found = _task(task, folder, trust)
    if found.tuning is None:
        raise WorkbenchError(f"the task {found.name} trains nothing; measure a pretrained run with workbench.evaluate")
    for name in ("seeds", "score"):
        if name in options:
            raise WorkbenchError(f"{name} is an option of the command; call finetune once for each seed")
    places = {"run": folder, "corpus": corpus, "output": output}
    tuning = options_from_python(found.tuning, **places, trust=trust, **options)
    return load_run(fine_tune(found, tuning, callbacks))


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
