"""`prepare corpus`: a corpus -> a filtered, resized, split or deduplicated corpus."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

import typer

from pipelines.commands.options import OnError, SplitShares, WritingOptions
from pipelines.preparing.chunks import Conversion
from pipelines.preparing.corpus_reader import CorpusReader, open_corpus
from pipelines.preparing.duplicates import BITS, Duplicates, rows_of_band
from pipelines.preparing.splits import Splits
from pipelines.stages import Stage
from pipelines.stages.media_checks import CheckImage, Quality
from pipelines.stages.pair_filters import AspectRatio, CaptionWords, Where, clean_captions
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Assignment, Count, CountOrZero, HashBits, Name, Ratio, Share, Side
from workbench.corpora.stored_corpus import CorpusFolder


@dataclass(frozen=True, kw_only=True)
class RecordSelection:
    """Which records are kept, and the split of each."""

    where: Annotated[
        list[Assignment],
        typer.Option(help="Keep the records whose meta matches: 'similarity>=0.3', 'language=en'. Repeatable."),
    ] = field(default_factory=list)
    split: SplitShares = field(default_factory=list)
    own_split: Annotated[
        list[Name], typer.Option(help="Records whose meta.split is NAME go to OUTPUT-NAME. Repeatable.")
    ] = field(default_factory=list)
    dedupe: Annotated[bool, typer.Option("--dedupe", help="Leave out exact duplicates (reads the corpus twice).")] = (
        False
    )
    on_error: Annotated[OnError, typer.Option(help="Damaged records: stop, or skip and count them.")] = OnError.stop
    numbered_keys: Annotated[
        bool, typer.Option("--numbered-keys", help="Number the records instead of keeping their keys.")
    ] = False


@dataclass(frozen=True, kw_only=True)
class Captions:
    """Filters of captions, for images and videos."""

    min_words: Annotated[CountOrZero, typer.Option(help="Captions with fewer words are left out.")] = 0
    max_words: Annotated[CountOrZero | None, typer.Option(help="Captions with more words are left out.")] = None

    def stages(self) -> list[Stage]:
        return [CaptionWords(self.min_words, self.max_words)] if self.min_words or self.max_words else []


@dataclass(frozen=True, kw_only=True)
class ImageSelection:
    """Filters of images and near-duplicate captions."""

    min_side: Annotated[Side, typer.Option(help="Images with a shorter side are dropped.")] = 1
    max_aspect: Annotated[Ratio | None, typer.Option(help="Largest ratio of the longer to the shorter side.")] = None
    max_pixels: Annotated[Count, typer.Option(help="Images with more pixels are dropped.")] = 50_000_000
    resize: Annotated[Side | None, typer.Option(help="Make the shorter side that many pixels where longer.")] = None
    quality: Annotated[Quality, typer.Option(help="JPEG quality of images that are encoded anew (1 to 95).")] = 92
    near_images: Annotated[
        HashBits | None,
        typer.Option(
            help=f"Drop images whose {BITS}-bit hash differs from an earlier one in at most this many bits (try 4)."
        ),
    ] = None
    near_captions: Annotated[
        Share | None,
        typer.Option(help="Drop captions whose similarity to an earlier one is at least this (0 to 1; try 0.8)."),
    ] = None

    def stages(self) -> list[Stage]:
        shaped: list[Stage] = [AspectRatio(self.max_aspect)] if self.max_aspect is not None else []
        return [*shaped, clean_captions, CheckImage(self.max_pixels, self.min_side, self.resize, self.quality)]


def corpus(
    corpus: Annotated[CorpusFolder, typer.Argument(help="Folder or URL of a corpus.", show_default=False)],
    options: WritingOptions,
    choosing: RecordSelection,
    captions: Captions,
    images: ImageSelection,
) -> None:
    """Filter, resize, split or dedupe a corpus into a new one, without the raw files.

    In a third-party WebDataset (img2dataset's, after `workbench index`) the fields of the JSON are the records' meta.
    Dropped records are counted by reason. The filters run before the search for near duplicates. Of near duplicates the
    first is kept.

    Examples:

      workbench prepare corpus laion --where 'similarity>=0.3' --where NSFW=UNLIKELY --min-side 100 -o corpora/laion

      workbench prepare corpus corpora/coco --resize 288 --split held-out=0.02 -o corpora/coco-288

      workbench prepare corpus corpora/cc3m --dedupe --near-images 4 --near-captions 0.8 -o corpora/cc3m-once
    """
    opened = open_corpus(str(corpus))
    stages = captions.stages()
    if opened.kind == "image-text":
        stages += images.stages()
    elif images != ImageSelection():
        raise WorkbenchError(f"{corpus} is a corpus of kind {opened.kind}; options of images need kind image-text")
    elif stages and opened.kind != "video-text":
        raise WorkbenchError(
            f"{corpus} is a corpus of kind {opened.kind}; options of captions need kind image-text or video-text"
        )
    if images.near_captions is not None:
        rows_of_band(images.near_captions)
    splits = Splits.parse(choosing.split, choosing.own_split)
    conditions = (Where(condition) for condition in choosing.where)
    on_error: Literal["stop", "skip"] = "skip" if choosing.on_error is OnError.skip else "stop"
    options.prepare(
        Conversion(CorpusReader(), (*conditions, *stages), on_error=on_error),
        [corpus],
        opened.kind,
        splits=splits,
        duplicates=Duplicates(choosing.dedupe, images.near_images, images.near_captions),
        numbered_keys=choosing.numbered_keys,
        about=opened.manifest.about,
    )
