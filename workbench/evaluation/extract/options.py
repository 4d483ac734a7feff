"""What the task extract is told on the command line; torch is not needed to read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from workbench.evaluation.options import Epochs, Scoring, Tuning
from workbench.options.bounds import Count


@dataclass(frozen=True, kw_only=True)
class ExtractTuning(Tuning):
    """Fine-tune a pretrained run to find the answer to a question in a text. The defaults are BERT's for SQuAD.

    CORPUS holds texts with a question in `second`, the right `answers`, and where each stands: `answer_spans`. The
    first is trained. Where some question has no answer, the run learns to give none (SQuAD 2.0).

    Example:

      workbench finetune extract runs/bert corpora/squad-train --held-out corpora/squad-dev
    """

    epochs: Epochs = 3.0
    max_length: Annotated[
        Count | None, typer.Option(help="Tokens of question and text; default: 384, or the model's positions if fewer.")
    ] = None
    stride: Annotated[
        Count | None, typer.Option(help="Tokens between the beginnings of the parts of a long text; default: half.")
    ] = None
    longest: Annotated[Count, typer.Option(help="Tokens that an answer may have.")] = 30


@dataclass(frozen=True, kw_only=True)
class ExtractScoring(Scoring):
    """Exact match and F1 over words (SQuAD's, 0 to 1), the best of a question's right answers.

    CORPUS holds texts with a question in `second`, `answers` and `answer_spans`.

    Example:

      workbench evaluate extract runs/bert-extract corpora/squad-dev
    """
