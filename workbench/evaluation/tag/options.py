"""What the task tag is told on the command line; torch is not needed to read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from workbench.evaluation.options import Scoring, Tuning
from workbench.options.bounds import Count


@dataclass(frozen=True, kw_only=True)
class TagTuning(Tuning):
    """Fine-tune a pretrained run to tag the words of a text.

    CORPUS holds texts with `tags` [[start, end, name], ...]: of single words (B-person, I-person, O), or of stretches
    (person). The steps that bring in knowledge are those of the run's pretraining.

    Example:

      workbench finetune tag runs/k-bert corpora/medical-ner --held-out corpora/medical-ner-dev --epochs 5
    """

    max_length: Annotated[
        Count | None,
        typer.Option(
            help="Tokens of a window of the text; default: 128, or fewer where the positions or the steps need it."
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class TagScoring(Scoring):
    """Accuracy over words; precision, recall and F1 over the chunks that their tags spell (the CoNLL evaluation).

    Words are those of whole texts: each is tagged once, in the window that shows most around it. One that the tokenizer
    makes nothing of counts as tagged O, and is counted. CORPUS holds texts with `tags`, of the names that RUN was
    fine-tuned on.

    Example:

      workbench evaluate tag runs/k-bert-tag corpora/medical-ner-dev
    """
