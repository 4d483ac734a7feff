"""`prepare image-text`: images with captions or questions -> an image-text corpus."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import typer

from pipelines.commands.corpora.fetching import Fetching, check_list
from pipelines.commands.options import CleaningOptions, ShardSize
from pipelines.sources.files import expand
from pipelines.stages import Stage
from pipelines.stages.media_checks import CheckImage, CheckMedia, Quality
from pipelines.stages.pair_filters import clean_captions
from pipelines.stages.text_cleaning import NormaliseText
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Count, Location, Side


@dataclass(frozen=True, kw_only=True)
class ImageCleaning(CleaningOptions):
    """Default number of records per shard: images are larger than texts."""

    shard_size: ShardSize = 1_000


def image_text(
    options: ImageCleaning,
    fetching: Fetching,
    images: Annotated[
        list[Location], typer.Option(help="Folder or plain tar of the images; default: images* next to the input.")
    ] = [],  # noqa: B006  (typer wants a list)
    resize: Annotated[Side | None, typer.Option(help="Scale a longer shorter side down to this many pixels.")] = None,
    quality: Annotated[Quality, typer.Option(help="JPEG quality of images that are encoded anew (1 to 95).")] = 92,
    max_pixels: Annotated[Count, typer.Option(help="Images with more pixels are dropped.")] = 50_000_000,
    min_side: Annotated[Side, typer.Option(help="Images with a shorter side are dropped.")] = 1,
) -> None:
    """Convert images with captions, questions or classes into an image-text corpus.

    Formats: COCO captions, Karpathy's splits, Flickr tokens, tables, JSON lines, Visual Genome (phrases, questions),
    VQA v2, GQA, easy-VQA, DAQUAR, VizWiz, TextVQA, DocVQA, A-OKVQA, OCR-VQA, NLVR, NLVR2, SNLI-VE, RefCOCO, Flickr30k
    Entities, LLaVA's conversations, ALBEF's and BLIP's lists. Images are found in the places of --images by their
    path, else by their file name. Every image is decoded once; damaged images are dropped and counted. Held-out splits
    are drawn by the image's content.

    --fetch downloads lists of URLs (Conceptual Captions, LAION's and DataComp's parquet, tables). Images of sites that
    have opted out (X-Robots-Tag) are left out. OUTPUT/dropped lists the images that could not be fetched, and why.

    Examples:

      workbench prepare image-text captions_train2017.json --images train2017/ --output corpora/coco

      workbench prepare image-text dataset_coco.json --images coco/ -o corpora/coco --own-split val --own-split test

      workbench prepare image-text Train_GCC-training.tsv --fetch --resize 256 --output corpora/cc3m

      workbench prepare image-text captions.jsonl --images images.tar -o corpora/flickr --split dev=0.1

      workbench prepare image-text pairs.jsonl -o corpora/nlvr2 --option 'fields={captions: sentence, labels: [label]}'

      workbench prepare image-text questions.json annotations.json --images train2014/ -o corpora/vqa --resize 288
    """
    check = CheckImage(max_pixels, min_side, resize, quality)
    stages: list[Stage] = [NormaliseText(), clean_captions, check, CheckMedia(check)]
    if not fetching.fetch:
        options.read("image-text", stages, images=images)
        return
    if options.dedupe:
        raise WorkbenchError(
            "--fetch with --dedupe would fetch every image twice; leave out duplicates afterwards: workbench prepare "
            f"corpus {options.output} --dedupe"
        )
    if images:
        raise WorkbenchError(
            "--fetch and --images contradict each other: use --fetch for a list of URLs, --images for local files"
        )
    check_list(options.format, expand(options.inputs))
    stages[2:3] = [fetching.stage(check, options.shard_size)]
    replace(options, option=[*options.option, "fetch=true"]).read("image-text", stages, log_drops=True)
