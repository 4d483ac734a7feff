"""A downstream task: what a pretrained model is fine-tuned for, or measured by.

A task is a file `evaluation/tasks/<task>.py` of a package with one class derived from `DownstreamTask`. The first line
of the file's docstring is the line that the command's help shows. Its options are in `evaluation/task_options.py` and
its panels in `evaluation/task_panels.py`: they are read without the task. `workbench.evaluation.scoring.task_finder`
finds it:

    workbench finetune <task> RUN CORPUS      its options: the fields of the task's `tuning`
    workbench evaluate <task> RUN CORPUS      those of its `scoring`
    workbench predict <task> RUN INPUT...     those of its `predicting`

A task elsewhere is named by import path, `package.module:Class`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from workbench.components.kinds import KINDS
from workbench.core.errors import WorkbenchError, quoted
from workbench.corpora.corpus import Corpus
from workbench.evaluation.options import MeasuringOptions, Predicting, Scoring, Tuning
from workbench.evaluation.scoring.evaluated_run import find_objective
from workbench.evaluation.scoring.passes import sample_pass
from workbench.evaluation.scoring.result import Result
from workbench.interop.run_or_checkpoint import found_at, opened
from workbench.pretraining.objective import Objective
from workbench.recipe.spec import Recipe, SequenceSpec
from workbench.runs.loaded_run import LoadedRun
from workbench.sequences.sequence import Sample

TuningOptions = TypeVar("TuningOptions", bound=Tuning)
ScoringOptions = TypeVar("ScoringOptions", bound=MeasuringOptions)


@dataclass(frozen=True)
class Setup:
    """The sequences and the objective of a fine-tuning.

    Attributes:
        unit: the field that the builder cuts items from, to count an epoch; None: the records are counted.
        poolers: streams that get a pooler where the run has none.
        sees: streams that the loss must depend on, if they have rows: a network whose head can't see them is refused.
        images: the number of images that the embedding of the stream `image` must distinguish. A run that distinguishes
            fewer gets new vectors.
        asks: fields of samples that hold the answers. A transform that reads them would reveal the answers.
        movement: steps times learning rate that a new head needs: less is logged as a warning. A step of Adam moves a
            weight by about the rate.
        heads: objectives whose head starts from that of an objective of the run, by their names.
    """

    sequence: SequenceSpec
    objective: dict[str, Any]
    unit: str | None = None
    poolers: tuple[str, ...] = ()
    sees: tuple[str, ...] = ()
    movement: float = 0.0
    images: int = 1
    asks: tuple[str, ...] = ()
    heads: dict[str, str] = field(default_factory=dict)


class DownstreamTask(Generic[TuningOptions, ScoringOptions]):
    """Base of the downstream tasks.

    Attributes:
        tuning: the options of `finetune`; None: the task is for evaluation alone.
        scoring: the options of `evaluate`: a `Scoring`, or of what is no run a `MeasuringOptions`.
        predicting: the options of `predict`; None: the task says nothing of inputs without right answers.
        objective: the class of the objective whose head is scored.
        recipe: one that pretrains with it, for the message where a task for evaluation alone meets a run without it.
        text_files: the ends of the names of files that `predict` reads line by line.
        gathers: whether each rank scores a share of the corpus, and the results are gathered (`Evaluated.world`).
        scored: whether its numbers say how well something was learned, so that those on training data are too good.
        panels: import paths of the report's panels for this task's results (`workbench.report.panels`).
    """

    tuning: type[TuningOptions] | None = None
    scoring: type[ScoringOptions]
    predicting: type[Predicting] | None = None
    objective: type[Objective]
    recipe: str = ""
    text_files: tuple[str, ...] = (".txt", ".text", "")
    gathers: bool = False
    scored: bool = True
    panels: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name in commands, recipes and results: that of the file in `evaluation/tasks/`, or else of the class."""
        *_, folder, module = ("", *type(self).__module__.split("."))
        return module.replace("_", "-") if folder == "tasks" else type(self).__name__.lower()

    def setup(self, tuning: TuningOptions, base: Recipe) -> Setup:
        """How `tuning.run`, whose recipe is `base`, is fine-tuned on `tuning.corpus`.

        Raises:
            WorkbenchError: an option, the run or the corpus does not fit the task.
        """
        raise NotImplementedError(f"{type(self).__name__} must define setup")

    def open(self, scoring: Any) -> Any:
        """The opened run: by default with what `chosen` says.

        Raises:
            WorkbenchError: there is no run, it can't be read, or as `chosen`.
        """
        assert isinstance(scoring, Scoring | Predicting), "what is no run is opened by the task itself"
        found = found_at(scoring.run, scoring.overrides or (), control=scoring.control, trust=scoring.trust)
        self.check_reads(found.recipe)
        return self.chosen(opened(found), scoring)

    def chosen(self, loaded: LoadedRun, options: Any) -> Any:
        """The head of a loaded run that is read: by default that of its first task with an objective of the task's
        class.

        Raises:
            WorkbenchError: there is none, or the control would change nothing.
        """
        wanted = self.wanted(options)
        return find_objective(loaded, options.run, self.objective, wanted, **options.where, control=options.control)

    def check_reads(self, recipe: Recipe) -> None:
        """Refuse a run that can't read the task's inputs (images, say) before any advice to train it.

        Raises:
            WorkbenchError: the recipe's tasks read no such thing.
        """

    def wanted(self, scoring: Scoring | Predicting) -> str:
        """Advice for a run without the objective, for the message: only a task with fine-tuning can add one."""
        if self.tuning is not None:
            return f"fine-tune it first: workbench finetune {self.name} {quoted(scoring.run)} TRAINING-SET"
        such = f", such as {self.recipe}" if self.recipe else ""
        return f"pretrain one with {KINDS['objective'].name(self.objective)}{such}"

    def score(self, run: Any, corpus: Corpus, scoring: ScoringOptions) -> Result:
        """The numbers of an opened run on a corpus, with those of baselines.

        Raises:
            WorkbenchError: the corpus or an option does not fit the run.
        """
        raise NotImplementedError(f"{type(self).__name__} must define score")

    def read_groups(self, run: Any, corpus: Corpus, size: int, limit: int | None) -> Iterator[list[Sample]]:
        """What `predict` reads of a corpus, `size` samples at once: by default each record, or the first ones."""
        return sample_pass([corpus], size=size, unit=None, records=limit)

    def asked(self, run: Any, sample: Sample, predicting: Any) -> Sample:
        """A sample as the run reads it, where the right answer is not known: with the options of the command, and with
        any answer in the place of the right one. No prediction depends on which one it is.

        Raises:
            WorkbenchError: the sample lacks what is asked about.
        """
        return sample

    def predict(self, run: Any, samples: list[Sample], number: int, predicting: Any) -> list[dict[str, Any]]:
        """What the run says of samples that were `asked`, the group of this number: a line for each item, as in
        `Result.predictions`, with the `key` of its sample, the `prediction`, and how probable it is. Where an item has
        a key of its own, `record` is that of its sample.

        Raises:
            WorkbenchError: a sample does not fit the run.
        """
        raise NotImplementedError(f"{type(self).__name__} must define predict")

    def write_predictions(self, file: Path, result: Result) -> None:
        """Write the prediction of each item for `--predictions FILE`: lines of JSON, or the format of a test server if
        the task has one and the file name asks for it.

        Raises:
            WorkbenchError: the task says nothing of its items (`Result.predictions`).
        """
        if not result.predictions.lines:
            raise WorkbenchError(
                f"--predictions: the task {self.name} has no predictions of items; its `score` should return a Result "
                "with `predictions`. Leave the option out"
            )
        result.predictions.write(file)

    def draw(self, run: Any, corpus: Corpus, scoring: ScoringOptions) -> None:
        """Draw the figures of a result into the run's folder (`workbench.report.run.save_figure`)."""
