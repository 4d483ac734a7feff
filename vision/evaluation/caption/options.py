"""What the task caption is told on the command line; torch is not needed to read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from workbench.evaluation.options import Tuning
from workbench.evaluation.writing import WritingScoring
from workbench.options.bounds import Count


@dataclass(frozen=True, kw_only=True)
class CaptionTuning(Tuning):
    """Fine-tune a pretrained run to write captions.

    CORPUS holds images or films with `captions`. RUN is one that can go on with the text of a pair (CoCa, a joint stack
    with clm), or has a decoder (UniVL), which then writes of the image or the film alone: the text is left empty. It
    goes on by the objective that it was pretrained with.

    Examples:

      workbench finetune caption runs/coca corpora/flickr-train --epochs 5
    """

    max_length: Annotated[Count | None, typer.Option(help="Tokens of a caption; default: the run's.")] = None


@dataclass(frozen=True, kw_only=True)
class CaptionScoring(WritingScoring):
    """BLEU 1 to 4 and CIDEr-D of the captions that a run writes, times 100, beside those of no model.

    CORPUS holds images or films with one or more `captions`, all of which are references; of films with `caption_times`
    the clips of each caption's time are described. The baselines: the most frequent caption of the training set for
    every image; the first caption of another image; and where images have several, the first one beside the others, as
    a person is worth. What was written stands beside the result (.jsonl).

    Examples:

      workbench evaluate caption runs/coca corpora/flickr-test --beams 3

      workbench evaluate caption runs/coca corpora/flickr-test --max-new-tokens 20 --limit 100
    """
