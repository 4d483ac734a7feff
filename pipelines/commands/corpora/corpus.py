"""`prepare corpus`: a corpus -> another one, filtered, made smaller, split, without duplicates."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
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


@dataclass(frozen=True, kw_only=True)
class RecordSelection:
    """Which records stay, and where they go."""

    where: Annotated[
        list[Assignment],
        typer.Option(help="Keep records whose meta fulfils this: 'similarity>=0.3', 'language=en'. Repeatable."),
    ] = field(default_factory=list)
    split: SplitShares = field(default_factory=list)
    own_split: Annotated[
        list[Name], typer.Option(help="Records that say that they are of this split (meta.split) go to OUTPUT-NAME.")
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
    """Of captions, of images or videos."""

    min_words: Annotated[CountOrZero, typer.Option(help="Captions with fewer words are left out.")] = 0
    max_words: Annotated[CountOrZero | None, typer.Option(help="Captions with more words are left out.")] = None

    def stages(self) -> list[Stage]:
        return [CaptionWords(self.min_words, self.max_words)] if self.min_words or self.max_words else []


@dataclass(frozen=True, kw_only=True)
class ImageSelection:
    """Of images and what is said of them."""

    min_side: Annotated[Side, typer.Option(help="Images with a shorter side are dropped.")] = 1
    max_aspect: Annotated[Ratio | None, typer.Option(help="Longest side of an image, in shortest sides.")] = None
    max_pixels: Annotated[Count, typer.Option(help="Images with more pixels are dropped.")] = 50_000_000
    resize: Annotated[Side | None, typer.Option(help="Make the shorter side that many pixels where longer.")] = None
    quality: Annotated[Quality, typer.Option(help="JPEG quality of images that are encoded anew (1 to 95).")] = 92
    near_images: Annotated[
        HashBits | None,
        typer.Option(help=f"Drop images whose hash of {BITS} bits differs from an earlier one's in so many (try 4)."),
    ] = None
    near_captions: Annotated[
        Share | None,
        typer.Option(help="Drop captions that share so much of their letters with an earlier one (try 0.8)."),
    ] = None

    def stages(self) -> list[Stage]:
        shaped: list[Stage] = [AspectRatio(self.max_aspect)] if self.max_aspect is not None else []
        return [*shaped, clean_captions, CheckImage(self.max_pixels, self.min_side, self.resize, self.quality)]


def corpus(
    corpus: Annotated[Path, typer.Argument(help="Folder of a corpus, or indexed WebDataset.", show_default=False)],
    options: WritingOptions,
    choosing: RecordSelection,
    captions: Captions,
    images: ImageSelection,
) -> None:
    """Filter, resize, split or dedupe a corpus into a new one, without the raw files.

    Of somebody else's WebDataset (img2dataset's, after `workbench index`) the fields of its JSON are the records' meta.
    What is dropped is counted by reason. Near duplicates are looked for in what the filters leave; the first is kept.

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
        raise WorkbenchError(f"{corpus} is a corpus of kind {opened.kind}; options of images are not for it")
    elif stages and opened.kind != "video-text":
        raise WorkbenchError(f"{corpus} is a corpus of kind {opened.kind}; options of captions are not for it")
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
