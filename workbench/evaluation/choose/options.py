"""What the task choose is told on the command line; torch is not needed to read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from workbench.evaluation.options import BatchSize, Epochs, Scoring, Tuning
from workbench.options.bounds import Count


@dataclass(frozen=True, kw_only=True)
class ChooseTuning(Tuning):
    """Fine-tune a pretrained run to choose the right one of several texts.

    CORPUS holds texts with `choices` and the number of the right one, `answer`; a question is in `second`. The steps
    that bring in knowledge are those of the run's pretraining. Or CORPUS holds images, each with one question and its
    choices (A-OKVQA): these stand beside the image. The control question-only trains without the images.

    Examples:

      workbench finetune choose runs/bert corpora/swag-train --held-out corpora/swag-dev

      workbench finetune choose runs/uniter corpora/aokvqa-train --held-out corpora/aokvqa-val
    """

    epochs: Epochs = 3.0
    batch_size: BatchSize = 16
    max_length: Annotated[
        Count | None,
        typer.Option(
            help="Tokens of a text with one choice; default: 128, or fewer where the positions or the steps need it; "
            "beside images as many as the run reads of a caption."
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ChooseScoring(Scoring):
    """Accuracy of the best choice and mean reciprocal rank of the right one, beside always the first choice.

    CORPUS holds texts, or images with a question each, with `choices` and `answer`.

    Example:

      workbench evaluate choose runs/bert-choose corpora/swag-dev
    """
