"""`prepare cooccurrence`: how often words occur near each other, as a corpus."""

from __future__ import annotations

import dataclasses
import logging
from typing import Annotated

import typer

from pipelines.commands.options import SplitShares, WritingOptions
from pipelines.preparing.chunks import Conversion
from pipelines.preparing.cooccurrences import CooccurrenceReader
from pipelines.preparing.corpus_reader import open_corpus
from pipelines.preparing.splits import Splits
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Count, Place
from workbench.corpora.stored_corpus import CorpusFolder
from workbench.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)


def cooccurrence(
    corpora: Annotated[list[CorpusFolder], typer.Argument(help="Folders or URLs of corpora.", show_default=False)],
    options: WritingOptions,
    tokenizer: Annotated[Place, typer.Option(help="The tokenizer of the recipe, of words.", show_default=False)],
    window: Annotated[Count, typer.Option(help="The most words between which a pair is counted, on each side.")] = 10,
    cells: Annotated[Count, typer.Option(help="The most words near a word that are in one record.")] = 64,
    split: SplitShares = [],  # noqa: B006
) -> None:
    """Count how often words occur near each other, for the objective cooccurrence (GloVe).

    A pair that is d words apart counts 1 / d, in both directions. Unknown words are left out before. A record has a
    word as its `text`, and words near it with their counts as `cooccurrences`. A split holds out pairs that are counted
    in the same texts: counts of other texts would be of another size.

    Example:

      workbench prepare cooccurrence corpora/text --tokenizer corpora/tokenizer.json --output corpora/cells
    """
    cut = Tokenizer.load(tokenizer)
    reader = CooccurrenceReader(tokenizer, cut.identity, window, cells, options.limit)
    if not reader.words:
        raise WorkbenchError(f"no token of {tokenizer} is a word; train one by `prepare tokenizer --kind word`")
    parts = len(cut.ordinary_ids) - len(reader.words)
    if parts:
        log.warning("%s: %s tokens are no words by themselves, and are left out", tokenizer, f"{parts:,}")
    opened = [open_corpus(str(corpus)) for corpus in corpora]
    about = {"counted": {str(corpus.place): corpus.identity for corpus in opened}}
    splits = Splits.parse(split)
    dataclasses.replace(options, limit=None).prepare(Conversion(reader), corpora, "text", splits=splits, about=about)
