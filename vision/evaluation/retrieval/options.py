"""What the task retrieval is told on the command line; torch is not needed to read it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from vision.choices import Ties, Way
from workbench.evaluation.options import BatchSize, Epochs, Scoring, Tuning
from workbench.options.bounds import Count, CountOrZero


@dataclass(frozen=True, kw_only=True)
class RetrievalTuning(Tuning):
    """Fine-tune a pretrained run to tell which captions belong to which images or films.

    CORPUS holds images with `captions`, or films with these, of which each caption is to find the clips of its time.
    The control shuffled-captions trains on those of other images. Batches are larger than other tasks': the negatives
    of the contrast are in them.

    Examples:

      workbench finetune retrieval runs/clip corpora/flickr-train --output runs/clip-flickr

      workbench finetune retrieval runs/uniter corpora/flickr-train --objective itm

      workbench finetune retrieval runs/uniter corpora/flickr-train --hard-negatives margin --batch-size 32

      workbench finetune retrieval runs/univl corpora/clips --objective itm --batch-size 32
    """

    epochs: Epochs = 5.0
    batch_size: BatchSize = 64
    objective: Annotated[
        Literal["itc", "itm"] | None,
        typer.Option(help="Dual encoder (itc) or matching (itm); default: what the run was trained with."),
    ] = None
    hard_negatives: Annotated[
        Way | None,
        typer.Option(help="Matching against the hardest of each batch: by a margin (UNITER), as a choice (ViLBERT)."),
    ] = None
    max_length: Annotated[Count | None, typer.Option(help="Tokens of a caption; default: the run's.")] = None


@dataclass(frozen=True, kw_only=True)
class RetrievalScoring(Scoring):
    """Recall at 1, 5 and 10 and median rank of image and text retrieval, beside chance and same features.

    CORPUS holds images or films with one or more `captions`; RUN has an itc, an itm or the like among its objectives.
    Without --rerank a run is ranked by its itc where it has one, and else by its itm: a forward pass for every pair. Of
    films with `caption_times` a caption is to find the clips of its time among those of all captions. Beside it
    the first images are ranked as if all had the same features (with --control same-features all of them): what is
    better than chance there is a leak. COCO's 1k protocol is the mean over five parts of its 5,000 test images.

    Examples:

      workbench evaluate retrieval runs/clip corpora/flickr-test

      workbench evaluate retrieval runs/clip corpora/coco-test --captions 5 --folds 5

      workbench evaluate retrieval runs/uniter-retrieval corpora/flickr-test --rerank 20 --first-stage runs/clip
    """

    rerank: Annotated[CountOrZero, typer.Option(help="Re-rank so many candidates of itc by itm; 0: do not.")] = 0
    first_stage: Annotated[
        Path | None, typer.Option(help="With --rerank: the run whose itc finds the candidates; default: RUN.")
    ] = None
    ties: Annotated[Ties, typer.Option(help="Equal scores: realistic (half a place each) or pessimistic.")] = (
        "realistic"
    )
    batch_size: Annotated[Count, typer.Option(help="Images (films), or pairs of one and a caption, at once.")] = 128
    folds: Annotated[Count, typer.Option(help="Parts of the images, each ranked by itself; the mean is told.")] = 1
    captions: Annotated[
        Count | None, typer.Option(help="Only so many captions of each image, the first ones (COCO: 5).")
    ] = None
    limit: Annotated[Count | None, typer.Option(help="Only the first images.")] = None
