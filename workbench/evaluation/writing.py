"""Options of evaluating what a run writes token by token: translations, summaries, captions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from workbench.evaluation.options import Scoring
from workbench.generation.decoding import Beams, Decoding, EarlyStopping, Penalty
from workbench.options.bounds import Count


@dataclass(frozen=True, kw_only=True)
class WritingScoring(Scoring):
    """How the tokens of what is scored are chosen."""

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
