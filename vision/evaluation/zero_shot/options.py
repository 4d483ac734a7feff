"""What the task zero-shot is told on the command line; torch is not needed to read it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from workbench.evaluation.options import Scoring
from workbench.options.bounds import Name

PHOTO = "a photo of a {}"


@dataclass(frozen=True, kw_only=True)
class ZeroShotScoring(Scoring):
    """Accuracy (the first class, and one of the first five) of a run with a contrast (itc) that has learnt no class,
    beside chance and the most frequent class.

    CORPUS holds images with `labels`: by name the name of a class. --labels is a file with a class a line, as CORPUS
    has it; behind a tab may stand the words that it has in prompts. Of several templates the vectors' mean is taken.

    Examples:

      workbench evaluate zero-shot runs/clip corpora/animals --labels animals.txt

      workbench evaluate zero-shot runs/clip corpora/animals --labels animals.txt --template "a photo of a {}" \
--template "a drawing of a {}"
    """

    labels: Annotated[Path, typer.Option(help="The classes, one a line; words for prompts behind a tab.")]
    template: Annotated[
        list[Name] | None, typer.Option(help=f"What a prompt says, {{}} for the class. Repeatable; default: {PHOTO}")
    ] = None
    label: Annotated[Name | None, typer.Option(help="Which label of CORPUS; default: the only one.")] = None
