"""What the task facts is told on the command line; torch is not needed to read it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from workbench.evaluation.options import Scoring
from workbench.options.bounds import Count, Location, Word

Normalisation = Literal["sum", "mean"]


@dataclass(frozen=True, kw_only=True)
class FactsScoring(Scoring):
    """Rank the object of each fact among all candidates, from a sentence with a slot where the object was.

    RUN has an MLM objective. CORPUS is what `prepare facts` makes of a graph, or texts of one's own: a record has
    `mask_spans` (the object's characters) and, in `meta`, `relation`, `subject` and `object` (ids). Candidates that are
    true too don't compete: those that `meta.known` lists, the object of another sentence of the same subject and
    relation, and with --known every object that these graphs state. Entities of one label are one candidate.

    Examples:

      workbench evaluate facts runs/k-bert corpora/facts-test

      workbench evaluate facts runs/k-bert corpora/facts-heldout --candidates candidates.json --known corpora/graph

      workbench evaluate facts runs/k-bert corpora/facts-heldout --candidates candidates.json --control no-kg
    """

    candidates: Annotated[
        Path | None,
        typer.Option(
            help="JSON: relation -> [{id, label}], what an object is ranked among; default: CORPUS/candidates.json."
        ),
    ] = None
    known: Annotated[
        list[Location] | None, typer.Option(help="A graph whose facts are true too (several times: several).")
    ] = None
    task: Annotated[Word | None, typer.Option(help="Whose builder and steps; default: the first that masks.")] = None
    normalisation: Annotated[Normalisation, typer.Option(help="Of a candidate of several tokens.")] = "sum"
    batch_size: Annotated[Count, typer.Option(help="Sentences at once.")] = 128

    def chosen(self) -> dict[str, Any]:
        """The candidates stand by their content among what was read."""
        return {name: value for name, value in super().chosen().items() if name != "candidates"}
