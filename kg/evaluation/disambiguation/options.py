"""What the task disambiguation is told on the command line; torch is not needed to read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from workbench.evaluation.options import Scoring
from workbench.options.bounds import Word


@dataclass(frozen=True, kw_only=True)
class DisambiguationScoring(Scoring):
    """Rank the candidates of mentions that are given, beside the scores of the linker that found them.

    RUN has an objective kg.entity_linking. CORPUS says which candidate is the right one: `prepare link CORPUS
    --supervise --candidates N` writes it where links are known. Mentions without the right one among their candidates
    are counted (NIL), and no part of the accuracy.

    Example:

      workbench evaluate disambiguation runs/knowbert corpora/wiki-candidates-held-out --stream wiki --task wiki
    """

    stream: Annotated[
        Word | None, typer.Option(help="Of the candidates, where a run links to several graphs; default: the first.")
    ] = None
