"""`prepare import-regions`: an image-text corpus with the region features that other people extracted."""

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

LOOKED_AT = 1_000
"""Records among which one must have features: so many say that ids of another kind were meant."""


@dataclass(frozen=True)
class WithFeatures(CorpusReader):
    """Every record of a corpus; what the files of features hold decides the new one, too."""

    features: tuple[RegionFiles, ...] = ()

    def inputs(self, paths: Sequence[Path]) -> list[Path]:
        return [*super().inputs(paths), *(path for file in self.features for path in file.files())]


@dataclass(frozen=True, kw_only=True)
class RegionWriting(WritingOptions):
    """Features are large."""

    shard_size: ShardSize = 1_000


@dataclass(frozen=True, kw_only=True)
class Foreign:
    """What the files hold, and what of it is kept."""

    backbone: Annotated[Name, typer.Option(help="What made the features; recipes name it (vars.backbone).")] = (
        "bottom-up-attention"
    )
    feature_size: Annotated[
        Size | None, typer.Option(help="Numbers of a region; others are refused. Default: those of the first image.")
    ] = None
    dtype: Annotated[Literal["float16", "float32"], typer.Option(help="Stored numbers: float16 or float32.")] = (
        "float16"
    )
    boxes: Annotated[
        Literal["auto", "pixels", "relative"],
        typer.Option(help="What boxes count where the files leave it open: pixels, or shares of the image."),
    ] = "auto"
    layout: Annotated[Literal["corners", "sides"], typer.Option(help="Boxes are x1 y1 x2 y2, or x y width height.")] = (
        "corners"
    )
    threshold: Annotated[Share, typer.Option(help="Leave out regions of less confidence (UNITER: 0.2).")] = 0.0
    min_regions: Annotated[CountOrZero, typer.Option(help="Regions kept even below the threshold.")] = 10
    max_regions: Annotated[Count, typer.Option(help="Regions kept at most.")] = 100
    on_error: Annotated[
        OnError, typer.Option(help="Damaged features, boxes outside of the image: stop, or skip and count them.")
    ] = OnError.stop


def import_regions(
    corpus: Annotated[Path, typer.Argument(help="Folder of an image-text corpus.", show_default=False)],
    features: Annotated[
        list[Path],
        typer.Option(
            "--from", help="A .tsv or .h5, a folder of an LMDB, GQA's .h5 or .npz. Repeatable.", show_default=False
        ),
    ],
    options: RegionWriting,
    foreign: Foreign,
) -> None:
    """Take region features over that other people extracted, into a new corpus.

    Formats: bottom-up attention's TSV and LXMERT's, VOLTA's HDF5, the folder of GQA's, UNITER's LMDB, folders of npz
    (UNITER's, MCAN's, OpenVQA's). Images are told by their id: a record's key, its image's name, its `id`, or the
    number that these end in (COCO's). Of records of named media (NLVR2) each image is looked for, by its file's name.
    Records with an image that has no features are dropped and counted.

    Examples:

      workbench prepare import-regions corpora/vqa --from train2014_obj36.tsv --output corpora/vqa-regions

      workbench prepare import-regions corpora/coco --from coco/feat_th0.2_max100_min10 -o corpora/regions

      workbench prepare import-regions corpora/mine --from npz/ --backbone my-detector -o corpora/mine-regions
    """
    opened = open_corpus(str(corpus))
    if opened.kind != "image-text":
        raise WorkbenchError(f"{corpus} is a corpus of kind {opened.kind}; regions are of images (kind image-text)")
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
    """The size of the first features that a record of the corpus has.

    Raises:
        WorkbenchError: none of the first records has any.
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
        f"{', '.join(map(str, named))}: no features of the first {min(corpus.records, LOOKED_AT)} images. "
        f"Its ids are like {' or '.join(map(repr, looked))}; those of the features like {known or 'none'}"
    )


def _size(found: FeatureIndex, place: tuple[int, Any]) -> int | None:
    """Numbers of a region; none where the features are damaged."""
    try:
        shape = found.files[place[0]].read(place[1]).arrays["features"].shape
    except DamagedRegionsError:
        return None
    return int(shape[1]) if len(shape) == 2 else None
