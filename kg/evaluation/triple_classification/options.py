"""What the task triple-classification is told on the command line; torch is not needed to read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from kg.evaluation.triple_options import TripleScoring
from workbench.options.bounds import Location


@dataclass(frozen=True, kw_only=True)
class TripleClassificationScoring(TripleScoring):
    """Tell true triples from false ones: a triple is true whose score is at least its relation's threshold.

    CORPUS has true triples, --negatives false ones. The thresholds are those that decide --valid and
    --valid-negatives best; a relation that these lack has that of all of them together.

    Example:

      workbench evaluate triple-classification runs/kg-bert corpora/test --negatives corpora/test-false --valid \
corpora/valid --valid-negatives corpora/valid-false --graph corpora/codex
    """

    negatives: Annotated[Location, typer.Option(help="A triples corpus: false triples to tell from CORPUS.")]
    valid: Annotated[Location, typer.Option(help="True triples that the thresholds are chosen on.")]
    valid_negatives: Annotated[Location, typer.Option(help="False triples that the thresholds are chosen on.")]
    beside: Annotated[
        list[Location] | None,
        typer.Option(help="Vectors to compare with: a .safetensors file (several times: several)."),
    ] = None
