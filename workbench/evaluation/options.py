"""What `finetune` and `evaluate` are told whatever the task. A task's own options are fields of a subclass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict, get_type_hints

import typer

from workbench.components.controls import Control
from workbench.core.errors import unknown
from workbench.core.files.yaml_values import parse_value
from workbench.core.options import bounds
from workbench.core.options.bounds import Assignment, Count, Location, Positive, Word
from workbench.core.options.command import Trust, WhichNetwork
from workbench.core.options.outputs import written
from workbench.core.options.values import check, is_text
from workbench.generation.decoding import Beams, Decoding, EarlyStopping, Penalty
from workbench.runs.output_places import OutputFile

Epochs = Annotated[Positive, typer.Option(help="Passes over the training set.")]
BatchSize = Annotated[Count, typer.Option(help="Examples per step.")]
Precision = Literal["float32", "bfloat16", "float16"]
LearningRate = Annotated[bounds.LearningRate, typer.Option(help="Peak learning rate.")]


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """What fine-tuning is told: from where, on what, for how long. The docstring of a subclass is its command's help.

    Attributes:
        overrides: `key=value`, applied last.
        control: recorded in the new run's recipe; by default that of `run`.
    """

    run: Annotated[Path, typer.Argument(help="The pretrained run, or a checkpoint: a folder, package:NAME.")]
    corpus: Annotated[Location, typer.Argument(help="Training set.")]
    overrides: Annotated[
        list[Assignment] | None, typer.Argument(help="Changes to the recipe, as key=value.", metavar="KEY=VALUE")
    ] = None
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="New run; default: RUN-TASK, of a checkpoint runs/NAME-TASK.")
    ] = None
    held_out: Annotated[
        Location | None, typer.Option(help="Corpus for held-out losses (train.evaluate_every=...).")
    ] = None
    epochs: Epochs = 4.0
    batch_size: BatchSize = 32
    lr: LearningRate = 5e-5
    network: WhichNetwork = None
    task: Annotated[
        Word | None, typer.Option(help="The run's task whose sequences are taken over, where several differ.")
    ] = None
    control: Annotated[Control | None, typer.Option(help="Train without what the control removes.")] = None
    without: Annotated[
        list[Word] | None, typer.Option(metavar="STREAM", help="A stream of the network that this task leaves empty.")
    ] = None
    adapters: Annotated[
        list[Path] | None, typer.Option(metavar="RUN", help="A run whose adapters are next to this one's. Repeatable.")
    ] = None
    seeds: Annotated[
        Count, typer.Option(help="So many runs with seeds of their own, evaluated on --held-out and tabulated.")
    ] = 1
    score: Annotated[
        list[Assignment] | None,
        typer.Option(metavar="OPTION=VALUE", help="With --seeds: an option of `evaluate`, as rule=positive_or_top."),
    ] = None
    trust: Trust = False


UNSTATED = ("batch_size", "control", "trust")  # they change no number, or stand in a result for themselves


@dataclass(frozen=True, kw_only=True)
class MeasuringOptions:
    """What every evaluation is told: what is measured (mostly a run), on what."""

    run: Annotated[Path, typer.Argument(help="The run, or a checkpoint: a folder, package:NAME.")]
    corpus: Annotated[Location, typer.Argument(help="Test set.")]
    limit: Annotated[Count | None, typer.Option(help="Only so many records of it, the first ones.")] = None
    predictions: Annotated[
        OutputFile | None,
        typer.Option(help="Write what was built from each item to this file too: lines of JSON (.jsonl)."),
    ] = None

    def chosen(self) -> dict[str, Any]:
        """The options that differ from their default, as plain values: what a result was made with. Files that are
        written next to it are none of them."""
        hints = get_type_hints(type(self), include_extras=True)
        untold = {*UNSTATED, *(name for name, hint in hints.items() if written(hint))}
        optional = [f for f in fields(self) if f.default is not MISSING and f.name not in untold]
        differing = {f.name: getattr(self, f.name) for f in optional if getattr(self, f.name) != f.default}
        return {name: str(value) if isinstance(value, Path) else value for name, value in differing.items()}


class HeadSelection(TypedDict):
    """Which head of a run is meant, as far as it is said."""

    network: str | None
    task: str | None
    objective: str | None


@dataclass(frozen=True, kw_only=True)
class Scoring(MeasuringOptions):
    """What the evaluation of a run is told. The docstring of a subclass is its command's help."""

    overrides: Annotated[
        list[Assignment] | None,
        typer.Argument(help="Changes to the run's recipe that need no training, as key=value.", metavar="KEY=VALUE"),
    ] = None
    network: WhichNetwork = None
    task: Annotated[Word | None, typer.Option(help="Which of the run's tasks, where several could be measured.")] = None
    objective: Annotated[
        Word | None, typer.Option(help="Which of its objectives, by its name, where several could be measured.")
    ] = None
    control: Annotated[Control | None, typer.Option(help="Take something away, at test time.")] = None
    batch_size: Annotated[Count, typer.Option(help="Samples at once.")] = 64
    precision: Annotated[
        Precision, typer.Option(help="What the networks compute in; heads stay in float32, next to 16 bit in TF32.")
    ] = "float32"
    trust: Trust = False

    @property
    def where(self) -> HeadSelection:
        """Which head of the run is measured (`workbench.evaluation.scoring.evaluated_run.find_fitting_objective`), as
        far as it is said."""
        return {"network": self.network, "task": self.task, "objective": self.objective}


@dataclass(frozen=True, kw_only=True)
class LikelihoodScoring(Scoring):
    """What an evaluation of probabilities is told."""

    unigrams: Annotated[
        Location | None,
        typer.Option(
            metavar="CORPUS", help="Count the baseline's tokens here (the training set); default: the test set."
        ),
    ] = None


def scoring_of(kind: type[MeasuringOptions], assignments: Sequence[str], **reported: Any) -> MeasuringOptions:
    """The options of an evaluation, some of them as OPTION=VALUE.

    Args:
        told: those that are known.

    Raises:
        WorkbenchError: there is no such option, or it does not allow the value.
    """
    hints = get_type_hints(kind, include_extras=True)
    allowed = [f.name for f in fields(kind) if f.name not in reported and not written(hints[f.name])]
    for assignment in assignments:
        name, _, value = assignment.partition("=")
        name = name.replace("-", "_")
        if name not in allowed:
            raise unknown("option", name, allowed, "--score")
        reported[name] = check(hints[name], value if is_text(hints[name]) else parse_value(value), f"--score {name}")
    return kind(**reported)


@dataclass(frozen=True, kw_only=True)
class WritingScoring(Scoring):
    """Options of evaluations that generate text (translations, summaries, captions): how tokens are chosen."""

    max_new_tokens: Annotated[
        Count | None, typer.Option(help="At most so many tokens are written; default: as in fine-tuning.")
    ] = None
    beams: Annotated[Beams, typer.Option(help="Texts that are followed at once.")] = 1
    length_penalty: Annotated[Penalty, typer.Option(help="With --beams: above 0 favours long texts.")] = 1.0
    early_stopping: Annotated[EarlyStopping, typer.Option(help="With --beams: when a search is done.")] = "false"

    def decoding(self, longest: int) -> Decoding:
        """How tokens are chosen, at most `longest` where it isn't said."""
        return Decoding(
            max_new_tokens=self.max_new_tokens or longest,
            beams=self.beams,
            length_penalty=self.length_penalty,
            early_stopping=self.early_stopping,
        )
