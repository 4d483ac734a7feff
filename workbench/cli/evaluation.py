"""The commands `workbench finetune TASK` and `workbench evaluate TASK`, built from the task's options.

Importing torch takes seconds: inputs are checked before it is imported.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import typer
from rich.markup import escape

from workbench.cli.app import Commands, Entry, needed_packages, typer_app
from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import atomic
from workbench.core.files.urls import is_url
from workbench.core.packages import PREFIX
from workbench.core.processes.launch import check_launch
from workbench.core.terminal import Terminal
from workbench.corpora.corpus import Corpus
from workbench.evaluation.options import MeasuringOptions, Scoring, Tuning
from workbench.evaluation.scoring.inputs import input_at
from workbench.evaluation.task_modules import line_of, options_of_task, predicting_tasks, task_modules, trained_tasks
from workbench.interop.checkpoint_files import check_place
from workbench.runs.names import is_run

FindTask = Callable[[], Any]
Function = Callable[..., None]


class TaskCommands(Commands):
    """A command per downstream task, with the task's own options. A task outside the workbench is named by its import
    path.

    Args:
        command_of: returns the function of a task's command; its arguments are a function that finds the task, and the
            class of the task's options.
        which: the attribute of a task that holds this class: `tuning`, `scoring` or `predicting`.
        folders: import paths of the tasks that the command supports, by name.
    """

    def __init__(
        self, command_of: Callable[[FindTask, type[Any]], Function], which: str, help: str, folders: dict[str, str]
    ) -> None:
        entries = {name: Entry(at, line_of(at)) for name, at in folders.items()}
        super().__init__(entries, help)
        self.command_of, self.which = command_of, which

    def _load(self, called: str, name: str, rest: list[str]) -> Commands | typer.Typer:
        if ":" not in name and name not in task_modules():
            self._check(called, name)

        def find() -> Any:
            from workbench.evaluation.scoring.task_finder import find_task

            with needed_packages(f"{called} {name}"):
                return find_task(name, trust="--trust" in rest, run=_run_among(rest))

        if name in task_modules() and name not in self.entries:
            raise self._unable(name)
        options = options_of_task(self.entries[name].path, self.which) if name in self.entries else None
        if options is None:  # the options of a user's task are in its own code
            task = find()
            options = getattr(task, self.which)
            if options is None:
                raise self._unable(task.name)
        return typer_app(self.command_of(find, options))

    def _check(self, called: str, name: str) -> None:
        if name not in self.entries and is_run(Path(name)):
            raise WorkbenchError(
                f"'{called} {name}' names a run and no task; it is '{called} TASK {name} ...'. "
                f"{self._fitting(Path(name))}"
            )
        super()._check(called, name)

    def _fitting(self, run: Path) -> str:
        """The tasks for which the run has a head, as a sentence; of all tasks if it has none."""
        from workbench.components.building import find
        from workbench.evaluation.scoring.task_finder import find_task
        from workbench.runs.folder import read_recipe

        specs = [str(spec["objective"]) for task in read_recipe(run).tasks.values() for spec in task.objectives]
        kinds = {find("objective", name) for name in specs if ":" not in name}  # a run's own code is not run
        rooms = {kind.__module__.partition(".")[0] for kind in kinds}
        near = [name for name, at in predicting_tasks().items() if at.partition(".")[0] in rooms]
        fitting = [name for name in near if getattr(find_task(name), "objective", None) in kinds]
        if fitting and self.which != "tuning":
            return f"The run has a head for {', '.join(fitting)}"
        return f"Tasks: {', '.join(self.entries)}"

    def _unable(self, task: str) -> WorkbenchError:
        if self.which == "predicting":
            return WorkbenchError(
                f"the task {task} predicts nothing of inputs without right answers; allowed: "
                f"{', '.join(self.entries)}. 'workbench generate RUN INPUT' writes texts"
            )
        return WorkbenchError(
            f"the task {task} has nothing to train; evaluate a pretrained run: workbench evaluate {task} RUN"
        )


def _run_among(words: Sequence[str]) -> Path | None:
    """The run that a command line names."""
    return next((Path(word) for word in words if is_run(Path(word))), None)


def _finetune(find: FindTask, options: type[Any]) -> Function:
    def finetune(tuning: Any) -> None:
        check_launch(os.environ)
        check_tuning(tuning)
        task = find()
        from workbench.evaluation.finetuning.finetuning import fine_tune
        from workbench.evaluation.finetuning.seed_runs import fine_tune_seeds

        if tuning.seeds > 1:
            fine_tune_seeds(task, tuning)
        else:
            fine_tune(task, tuning)

    return _in_words(finetune, tuning=options)


def _evaluate(find: FindTask, options: type[Any]) -> Function:
    def evaluate(scoring: Any) -> None:
        check_launch(os.environ)
        check_scoring(scoring)
        task = find()
        from workbench.evaluation.scoring.evaluation import evaluate as evaluate_run

        evaluate_run(task, scoring)

    return _in_words(evaluate, scoring=options)


def _predict(find: FindTask, options: type[Any]) -> Function:
    def predict(predicting: Any) -> None:
        if not predicting.inputs:
            raise WorkbenchError(
                "nothing is given to predict; INPUT is a text, or the place of texts, images or a corpus"
            )
        check_scored(predicting.run)
        for source in predicting.inputs:
            input_at(source)
        task = find()
        from workbench.evaluation.scoring.prediction import Predictor, write_lines

        lines = Predictor.opened(task, predicting).of_inputs(predicting.inputs)
        if predicting.output is None:
            console = Terminal(soft_wrap=True)
            write_lines(lines, lambda line: console.print(line, markup=False, highlight=False))
            return
        with atomic(predicting.output) as file:
            count = write_lines(lines, lambda line: file.write(f"{line}\n".encode()))
        Terminal().print(f"{escape(str(predicting.output))}: {count:,} predictions", highlight=False)

    return _in_words(predict, predicting=options)


def check_tuning(tuning: Tuning) -> None:
    """Check that the places which fine-tuning reads exist.

    Raises:
        WorkbenchError: RUN, the run of --adapters, CORPUS or --held-out does not exist.
    """
    for place in (tuning.run, *(tuning.adapters or ())):
        check_place(place)
    _check_corpora(tuning.corpus, tuning.held_out)


def check_scoring(scoring: MeasuringOptions) -> None:
    """Check that the places which an evaluation reads exist. RUN may be a file of vectors; for a task that needs no run
    it may be any file or folder.

    Raises:
        WorkbenchError: RUN or CORPUS does not exist.
    """
    check_scored(scoring.run, is_run=isinstance(scoring, Scoring))
    _check_corpora(scoring.corpus)


def check_scored(place: Path, *, is_run: bool = True) -> None:
    """Check that a run, a file of vectors, or what is no run exists.

    Raises:
        WorkbenchError: it does not.
    """
    if is_run and not place.is_file():
        check_place(place)
    elif not (place.exists() or str(place).startswith(PREFIX)):
        raise WorkbenchError(f"there is no {place}: no such file or folder")


def _check_corpora(*places: str | None) -> None:
    """Open the corpora that are on this machine."""
    for place in places:
        if place is not None and not is_url(place):
            Corpus.open(place)


def _in_words(function: Function, **options: type) -> Function:
    """The function with the class of its options, whose docstring is the command's help."""
    function.__annotations__ = dict(options)
    (function.__doc__,) = (kind.__doc__ for kind in options.values())
    return function


finetune = TaskCommands(
    _finetune,
    "tuning",
    "Fine-tune a pretrained run on a downstream task, or on a task of your own (package.module:Class).",
    trained_tasks(),
)
evaluate = TaskCommands(
    _evaluate,
    "scoring",
    "Evaluate a run on a downstream task; writes a JSON file into the run's evaluations/.",
    task_modules(),
)
predict = TaskCommands(
    _predict,
    "predicting",
    "Say what a fine-tuned run predicts of texts, images or corpora without right answers.",
    predicting_tasks(),
)
