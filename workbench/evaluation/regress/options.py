"""What the task regress is told on the command line; torch is not needed to read it."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.evaluation.classify.options import LabelTuning
from workbench.evaluation.options import Scoring


@dataclass(frozen=True, kw_only=True)
class RegressTuning(LabelTuning):
    """Fine-tune a pretrained run to tell a number of a text, or of a text and its `second`.

    CORPUS holds texts with `labels`: by name a number. The steps that bring in knowledge are those of the run's
    pretraining.

    Example:

      workbench finetune regress runs/bert corpora/sts-train --held-out corpora/sts-dev --seeds 3
    """


@dataclass(frozen=True, kw_only=True)
class RegressScoring(Scoring):
    """Pearson and Spearman correlation and mean squared error, beside always the mean of the training set.

    CORPUS holds texts with the label that RUN was fine-tuned on.

    Example:

      workbench evaluate regress runs/bert-regress corpora/sts-dev
    """
