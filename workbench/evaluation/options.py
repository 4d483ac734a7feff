"""Command-line options of all tasks of `finetune` and `evaluate`. A task adds options as fields of a subclass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypedDict, get_type_hints

import typer

from workbench.components.controls import Control
from workbench.core.errors import unknown
from workbench.core.files.yaml_values import parse_value
from workbench.core.options import bounds
from workbench.core.options.bounds import Assignment, Count, OutputPlace, Place, Positive, Question, Word
from workbench.core.options.command import Trust, WhichNetwork
from workbench.core.options.outputs import written
from workbench.core.options.values import check, is_text
from workbench.generation.decoding import Beams, Decoding, EarlyStopping, Penalty
from workbench.recipe.train_spec import Precision
from workbench.runs.output_places import OutputFile
from workbench.runs.stored_run import StoredFolder

Epochs = Annotated[Positive, typer.Option(help="Passes over the training set.")]
BatchSize = Annotated[Count, typer.Option(help="Examples per step.")]

LearningRate = Annotated[bounds.LearningRate, typer.Option(help="Peak learning rate.")]


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """Options of every `finetune` command. The docstring of a subclass is the help of its command.

    Attributes:
        overrides: changes to the recipe, `key=value`, applied last.
        control: recorded in the new run's recipe; by default that of `run`.
    """

    run: Annotated[
        StoredFolder, typer.Argument(help="The pretrained run, or a checkpoint: a folder, a URL or package:NAME.")
    ]
    corpus: Annotated[Place, typer.Argument(help="Training set.")]
    overrides: Annotated[
        list[Assignment] | None, typer.Argument(help="Changes to the recipe, as key=value.", metavar="KEY=VALUE")
    ] = None
    output: Annotated[
        OutputPlace | None,
        typer.Option(
            "--output", "-o", help="New run, also a URL; default: RUN-TASK, or runs/NAME-TASK from a checkpoint."
        ),
    ] = None
    held_out: Annotated[Place | None, typer.Option(help="Corpus for held-out losses (train.evaluate_every=...).")] = (
        None
    )
    epochs: Epochs = 4.0
    batch_size: BatchSize = 32
    lr: LearningRate = 5e-5
    network: WhichNetwork = None
    task: Annotated[
        Word | None, typer.Option(help="The run's task whose transforms are used, if its tasks differ.")
    ] = None
    control: Annotated[
        Control | None, typer.Option(help="Train with this control, which removes or exchanges a part of the input.")
    ] = None
    without: Annotated[
        list[Word] | None, typer.Option(metavar="STREAM", help="A stream of the network that this task does not fill.")
    ] = None
    adapters: Annotated[
        list[StoredFolder] | None,
        typer.Option(metavar="RUN", help="Add the adapters of this run to the network. Repeatable."),
    ] = None
    teacher: Annotated[
        list[Place] | None,
        typer.Option(
            metavar="RUN", help="Learn also what this run predicts, which was fine-tuned on the same task. Repeatable."
        ),
    ] = None
    seeds: Annotated[
        Count, typer.Option(help="Number of runs, each with its own seed, evaluated on --held-out and tabulated.")
    ] = 1
    score: Annotated[
        list[Assignment] | None,
        typer.Option(
            metavar="OPTION=VALUE", help="With --seeds: an option of `evaluate`, such as rule=positive_or_top."
        ),
    ] = None
    trust: Trust = False


UNSTATED = ("batch_size", "control", "trust")  # they change no number, or have a field of their own in a result


@dataclass(frozen=True, kw_only=True)
class MeasuringOptions:
    """Options of every evaluation, also of those that measure no run (a linker)."""

    run: Annotated[StoredFolder, typer.Argument(help="The run, or a checkpoint: a folder, a URL or package:NAME.")]
    corpus: Annotated[Place, typer.Argument(help="Test set.")]
    limit: Annotated[Count | None, typer.Option(help="Evaluate only the first N records.")] = None
    predictions: Annotated[
        OutputFile | None,
        typer.Option(help="Write the prediction of each item to this .jsonl file."),
    ] = None

    def chosen(self) -> dict[str, Any]:
        """The options that differ from their default, as plain values, for the result. Output files are left out."""
        hints = get_type_hints(type(self), include_extras=True)
        omitted = {*UNSTATED, *(name for name, hint in hints.items() if written(hint))}
        optional = [f for f in fields(self) if f.default is not MISSING and f.name not in omitted]
        differing = {f.name: getattr(self, f.name) for f in optional if getattr(self, f.name) != f.default}
        return {name: str(value) if isinstance(value, Path) else value for name, value in differing.items()}


class HeadSelection(TypedDict):
    """The options that select a head of a run. None: not given."""

    network: str | None
    task: str | None
    objective: str | None


@dataclass(frozen=True, kw_only=True)
class HeadReading:
    """Options of commands that read a head of a run: which one, and how."""

    network: WhichNetwork = None
    task: Annotated[Word | None, typer.Option(help="The run's task that is read, if several fit.")] = None
    objective: Annotated[Word | None, typer.Option(help="The name of the objective that is read, if several fit.")] = (
        None
    )
    control: Annotated[
        Control | None, typer.Option(help="Read with this control, which removes or exchanges a part of the input.")
    ] = None
    batch_size: Annotated[Count, typer.Option(help="Samples at once.")] = 64
    precision: Annotated[
        Precision,
        typer.Option(help="Precision of the networks. Heads compute in float32 (TF32 if the networks use 16 bits)."),
    ] = "float32"
    trust: Trust = False

    @property
    def where(self) -> HeadSelection:
        """The options that select the head (`workbench.evaluation.scoring.evaluated_run.find_fitting_objective`)."""
        return {"network": self.network, "task": self.task, "objective": self.objective}


@dataclass(frozen=True, kw_only=True)
class Scoring(HeadReading, MeasuringOptions):
    """Options of an evaluation of a run. The docstring of a subclass is the help of its command."""

    overrides: Annotated[
        list[Assignment] | None,
        typer.Argument(help="Changes to the run's recipe that need no training, as key=value.", metavar="KEY=VALUE"),
    ] = None


@dataclass(frozen=True, kw_only=True)
class Predicting(HeadReading):
    """Options of every `predict` command. The docstring of a subclass is the help of its command."""

    overrides: ClassVar[None] = None
    run: Annotated[StoredFolder, typer.Argument(help="The run, or a checkpoint: a folder, a URL or package:NAME.")]
    inputs: Annotated[
        list[Question] | None,
        typer.Argument(metavar="INPUT", help="Texts, or places: text files, images, corpora, files for `prepare`."),
    ] = None
    output: Annotated[
        OutputFile | None, typer.Option("--output", "-o", help="The .jsonl file to write; default: the terminal.")
    ] = None
    linker: Annotated[
        Place | None,
        typer.Option(help="The linker, or graph, for texts without links; default: the graph that the run reads."),
    ] = None
    limit: Annotated[Count | None, typer.Option(help="Only the first N inputs.")] = None
    on_error: Annotated[
        Literal["stop", "skip"],
        typer.Option(help="Records of files for `prepare` that do not fit their format: stop, or skip and count them."),
    ] = "stop"


@dataclass(frozen=True, kw_only=True)
class LikelihoodScoring(Scoring):
    """Options of an evaluation of token probabilities."""

    unigrams: Annotated[
        Place | None,
        typer.Option(
            metavar="CORPUS", help="Corpus for the baseline's counts (the training set); default: the test set."
        ),
    ] = None


def scoring_of(kind: type[MeasuringOptions], assignments: Sequence[str], **known: Any) -> MeasuringOptions:
    """The options of an evaluation, some of them from `assignments` OPTION=VALUE.

    Args:
        known: the values of the other options; `assignments` cannot set these.

    Raises:
        WorkbenchError: there is no such option, or it does not allow the value.
    """
    hints = get_type_hints(kind, include_extras=True)
    allowed = [f.name for f in fields(kind) if f.name not in known and not written(hints[f.name])]
    for assignment in assignments:
        name, _, value = assignment.partition("=")
        name = name.replace("-", "_")
        if name not in allowed:
            raise unknown("option", name, allowed, "--score")
        known[name] = check(hints[name], value if is_text(hints[name]) else parse_value(value), f"--score {name}")
    return kind(**known)


@dataclass(frozen=True, kw_only=True)
class TextDecoding:
    """Options of commands that generate text with a fine-tuned run: how tokens are chosen."""

    max_new_tokens: Annotated[
        Count | None, typer.Option(help="Maximum number of generated tokens; default: as in fine-tuning.")
    ] = None
    beams: Annotated[Beams, typer.Option(help="Number of beams.")] = 1
    length_penalty: Annotated[Penalty, typer.Option(help="With --beams: a value above 0 favours long texts.")] = 1.0
    early_stopping: Annotated[EarlyStopping, typer.Option(help="With --beams: the condition that ends a search.")] = (
        "false"
    )

    def decoding(self, longest: int) -> Decoding:
        """The decoding options; `longest` is the default of `max_new_tokens`."""
        return Decoding(
            max_new_tokens=self.max_new_tokens or longest,
            beams=self.beams,
            length_penalty=self.length_penalty,
            early_stopping=self.early_stopping,
        )


@dataclass(frozen=True, kw_only=True)
class WritingScoring(TextDecoding, Scoring):
    """Options of evaluations that generate text (translations, summaries, captions)."""
