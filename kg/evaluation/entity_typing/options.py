"""What the task entity-typing is told on the command line; torch is not needed to read it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from kg.metrics.typing import Gold, Macro, Rule
from kg.objectives._reading import Reading
from workbench.evaluation.options import BatchSize, Epochs, LearningRate, Scoring, Tuning
from workbench.options.bounds import Count, Name


@dataclass(frozen=True, kw_only=True)
class TypingTuning(Tuning):
    """Fine-tune a pretrained run to tell the types of a marked mention. The defaults are those of Open Entity.

    CORPUS holds texts with `mention` and `types`. The steps that bring in knowledge (entity stream, sentence tree) are
    those of the run's pretraining; the controls no-kg, shuffled-kg and random-entities take it away.

    Examples:

      workbench finetune entity-typing runs/ernie corpora/ufet --types open-entity --output runs/ernie-typing

      workbench finetune entity-typing runs/ernie corpora/ufet --control random-entities -o runs/ernie-typing-random

      workbench finetune entity-typing runs/luke corpora/ufet --read entities

      workbench finetune entity-typing runs/ernie corpora/ufet --types types.txt --groups types.txt
    """

    epochs: Epochs = 10.0
    batch_size: BatchSize = 16
    lr: LearningRate = 2e-5
    types: Annotated[
        Name | None, typer.Option(help="open-entity, a file, or names with commas; default: all types of CORPUS.")
    ] = None
    groups: Annotated[
        Path | None,
        typer.Option(help="List of all types of ultra-fine entity typing: each of its three groups has its own loss."),
    ] = None
    max_length: Annotated[
        Count | None,
        typer.Option(help="Tokens of the text; default: 128, or fewer where the positions or the steps need it."),
    ] = None
    marker: Annotated[
        Name | None, typer.Option(help="Text around the mention; default: the first of 。 @ # * | / in the vocabulary.")
    ] = None
    read: Annotated[
        Reading,
        typer.Option(help="The pooler; the first row, [CLS], itself; the marker before the mention; its entity token."),
    ] = "pooled"


@dataclass(frozen=True, kw_only=True)
class TypingScoring(Scoring):
    """Strict accuracy, loose macro and loose micro scores of a typing run.

    CORPUS holds texts with `mention` and `types`.

    Examples:

      workbench evaluate entity-typing runs/ernie-typing corpora/ufet-dev --macro ernie

      workbench evaluate entity-typing runs/ernie-typing corpora/ufet-dev --control random-entities

      workbench evaluate entity-typing runs/ultra-fine corpora/ufet-dev --rule positive_or_top --groups types.txt
    """

    rule: Annotated[
        Rule, typer.Option(help="positive: logit > 0 (Open Entity); positive_or_top: at least one type (FIGER).")
    ] = "positive"
    macro: Annotated[Macro, typer.Option(help="Macro average: open_type (the data set's), ernie.")] = "open_type"
    gold: Annotated[
        Gold, typer.Option(help="Gold types to be found: all, or those of the run's inventory (Open Entity's nine).")
    ] = "all"
    groups: Annotated[
        Path | None,
        typer.Option(help="List of all types of ultra-fine entity typing: macro scores of its three groups, too."),
    ] = None
    probe: Annotated[bool, typer.Option(help="Beside an entity stream: a linear probe on its vectors alone.")] = True
