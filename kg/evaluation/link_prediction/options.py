"""What the task link-prediction is told on the command line; torch is not needed to read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from kg.evaluation.triple_options import TripleScoring
from workbench.options.bounds import Count, Location, Seed


@dataclass(frozen=True, kw_only=True)
class LinkScoring(TripleScoring):
    """Rank the tail of each triple among all entities of the graph, given head and relation, and its head likewise.

    Entities that make another known triple don't compete (the filtered setting): those of --graph, of CORPUS, and of
    every --known. Name all the parts that your graph was split into. Ranks are realistic, so that equal scores get
    the middle of their places.

    A run that reads a triple as a whole (KG-BERT) scores one candidate after the other: --candidates ranks among
    so many that are drawn, which is easier than among all; the result says so.

    Examples:

      workbench evaluate link-prediction entities.safetensors corpora/codex-test --graph corpora/codex --known \
corpora/codex-valid

      workbench evaluate link-prediction runs/kg-bert corpora/codex-test --graph corpora/codex --known \
corpora/codex-valid --candidates 50
    """

    known: Annotated[
        list[Location] | None, typer.Option(help="A graph whose triples are true too (several times: several).")
    ] = None
    candidates: Annotated[
        Count | None, typer.Option(help="Rank among so many wrong entities, drawn for each question.")
    ] = None
    seed: Annotated[Seed, typer.Option(help="Of what is drawn.")] = 0
    unseen: Annotated[
        bool, typer.Option("--unseen", help="Only triples with an entity that is in no triple of the graph.")
    ] = False
