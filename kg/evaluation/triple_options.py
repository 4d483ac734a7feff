"""What the evaluations over graphs are told on the command line; torch is not needed to read it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from workbench.evaluation.options import Scoring
from workbench.options.bounds import Count, Location


@dataclass(frozen=True, kw_only=True)
class TripleScoring(Scoring):
    """What the evaluations over graphs are told."""

    run: Annotated[Path, typer.Argument(help="The run, or vectors of `prepare vectors`: a .safetensors file.")]
    corpus: Annotated[Location, typer.Argument(help="A triples corpus: the held-out triples.")]
    graph: Annotated[
        Location, typer.Option(help="The graph that was trained on: its entities, their texts, what is known.")
    ]
    batch_size: Annotated[Count, typer.Option(help="Triples at once.")] = 256
