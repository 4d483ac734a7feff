"""`prepare import-regions`: an image-text corpus with precomputed region features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from pipelines.commands.options import OnError, ShardSize, WritingOptions
from pipelines.preparing.chunks import Conversion
from pipelines.preparing.corpus_reader import CorpusReader, open_corpus
from pipelines.readers.regions.region_files import DamagedRegionsError, RegionFiles, open_regions
from pipelines.stages.region_join import FeatureIndex, JoinRegions, find_regions, ids_of
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Count, CountOrZero, Name, Share, Size
from workbench.corpora.corpus import Corpus
from workbench.corpora.stored_corpus import CorpusFolder

LOOKED_AT = 1_000
"""Number of first records that are searched for features; if none has any, the ids are of another kind."""


@dataclass(frozen=True)
class WithFeatures(CorpusReader):
    """A reader of every record of a corpus; the files of features are inputs, too."""

    features: tuple[RegionFiles, ...] = ()

    def inputs(self, paths: Sequence[Path]) -> list[Path]:
        return [*super().inputs(paths), *(path for file in self.features for path in file.files())]


@dataclass(frozen=True, kw_only=True)
class RegionWriting(WritingOptions):
    """Default number of records per shard: features are large."""

    shard_size: ShardSize = 1_000


@dataclass(frozen=True, kw_only=True)
class Foreign:
    """The layout of the files, and the regions to keep."""

    backbone: Annotated[Name, typer.Option(help="Name of the extractor; recipes refer to it (vars.backbone).")] = (
        "bottom-up-attention"
    )
    feature_size: Annotated[
        Size | None, typer.Option(help="Feature size of a region. Default: that of the first image.")
    ] = None
    dtype: Annotated[Literal["float16", "float32"], typer.Option(help="Stored numbers: float16 or float32.")] = (
        "float16"
    )
    boxes: Annotated[
        Literal["auto", "pixels", "relative"],
        typer.Option(help="Unit of boxes where the files do not state it: pixels, or fractions of the image."),
    ] = "auto"
    layout: Annotated[Literal["corners", "sides"], typer.Option(help="Boxes are x1 y1 x2 y2, or x y width height.")] = (
        "corners"
    )
    threshold: Annotated[Share, typer.Option(help="Drop regions of lower confidence (UNITER: 0.2).")] = 0.0
    min_regions: Annotated[CountOrZero, typer.Option(help="Regions kept even below the threshold.")] = 10
    max_regions: Annotated[Count, typer.Option(help="Regions kept at most.")] = 100
    on_error: Annotated[
        OnError, typer.Option(help="Damaged features, boxes outside of the image: stop, or skip and count them.")
    ] = OnError.stop


def import_regions(
    corpus: Annotated[CorpusFolder, typer.Argument(help="Folder or URL of an image-text corpus.", show_default=False)],
    features: Annotated[
        list[Path],
        typer.Option(
            "--from", help="A .tsv or .h5, a folder of an LMDB, GQA's .h5 or .npz. Repeatable.", show_default=False
        ),
    ],
    options: RegionWriting,
    foreign: Foreign,
) -> None:
    """Import precomputed region features into a new corpus.

    Formats: bottom-up attention's TSV and LXMERT's, VOLTA's HDF5, the folder of GQA's, UNITER's LMDB, folders of npz
    (UNITER's, MCAN's, OpenVQA's). Images are matched by their id: a record's key, its image's name, its `id`, or the
    number at their end (COCO's). In records with several images (NLVR2) each image is matched by its file name.
    Records with an image without features are dropped and counted.

    Examples:

      workbench prepare import-regions corpora/vqa --from train2014_obj36.tsv --output corpora/vqa-regions

      workbench prepare import-regions corpora/coco --from coco/feat_th0.2_max100_min10 -o corpora/regions

      workbench prepare import-regions corpora/mine --from npz/ --backbone my-detector -o corpora/mine-regions
    """
    opened = open_corpus(str(corpus))
    if opened.kind != "image-text":
        raise WorkbenchError(f"{corpus} is a corpus of kind {opened.kind}; region features need kind image-text")
    files = tuple(map(open_regions, features))
    found = find_regions(files)
    first = _first(opened, found, features)
    stage = JoinRegions(
        found,
        foreign.backbone,
        foreign.feature_size or first,
        foreign.dtype,
        foreign.boxes,
        foreign.layout,
        foreign.threshold,
        foreign.min_regions,
        foreign.max_regions,
        "skip" if foreign.on_error is OnError.skip else "stop",
    )
    about = {**opened.manifest.about, "backbone": foreign.backbone}
    options.prepare(Conversion(WithFeatures(files), (stage,)), [corpus], "image-text", about=about)


def _first(corpus: Corpus, found: FeatureIndex, named: Sequence[Path]) -> int:
    """The feature size of the first record that has features.

    Raises:
        WorkbenchError: none of the first records has features.
    """
    looked: list[str] = []
    for sample in islice(corpus, LOOKED_AT):
        looked = looked or [name for names in ids_of(sample).values() for name in names]
        for place in found.images(sample).values():
            size = None if place is None else _size(found, place)
            if size is not None:
                return size
    known = ", ".join(map(repr, islice(found.places, 3)))
    raise WorkbenchError(
        f"{', '.join(map(str, named))}: no features for the first {min(corpus.records, LOOKED_AT)} images. "
        f"Their ids are like {' or '.join(map(repr, looked))}; the ids of the features are like {known or 'none'}"
    )


def _size(found: FeatureIndex, place: tuple[int, Any]) -> int | None:
    """The feature size of a region; None where the features are damaged."""
    try:
        shape = found.files[place[0]].read(place[1]).arrays["features"].shape
    except DamagedRegionsError:
        return None
    return int(shape[1]) if len(shape) == 2 else None
