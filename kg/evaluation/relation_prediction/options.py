"""What the task relation-prediction is told on the command line; torch is not needed to read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from workbench.evaluation.options import Scoring
from workbench.options.bounds import Location


@dataclass(frozen=True, kw_only=True)
class RelationPredictionScoring(Scoring):
    """Rank the relation of each triple among all relations of the graph that RUN was trained on, given head and tail.

    CORPUS is a triples corpus: the held-out triples. Other relations that are known to hold between the two don't
    compete (the filtered setting): those of the run's graph, of CORPUS, and of every --known. Name all the parts that
    your graph was split into. Ranks are realistic, so that equal scores get the middle of their places.

    Beside the ranks stand those of the graph's most frequent relations, whatever the two are, and of the relations
    that the head, and the tail, have in the graph.

    Example:

      workbench evaluate relation-prediction runs/kg-bert-relations corpora/codex-test --known corpora/codex-valid
    """

    known: Annotated[
        list[Location] | None, typer.Option(help="A graph whose triples are true too (several times: several).")
    ] = None
