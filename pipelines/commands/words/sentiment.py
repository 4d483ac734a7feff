"""`prepare sentiment`: a text corpus whose words have their part of speech and polarity."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipelines.commands.options import WritingOptions
from pipelines.preparing.chunks import Conversion
from pipelines.preparing.corpus_reader import CorpusReader, open_corpus
from pipelines.preparing.progress import console
from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import sha256_of
from workbench.core.options.bounds import Location
from workbench.core.packages import extra
from workbench.corpora.corpus import Corpus

if TYPE_CHECKING:
    from kg.lexicons.sentiment_lexicon import SentimentLexicon

log = logging.getLogger(__name__)


def sentiment(
    corpus: Annotated[Path, typer.Argument(help="Folder of a text corpus.", show_default=False)],
    options: WritingOptions,
    lexicon: Annotated[
        Location, typer.Option(help="Lines of word, part of speech (n, v, a, r), polarity.", show_default=False)
    ],
) -> None:
    """Mark the words of texts with their part of speech and polarity (tags), for the transform kg.sentiment (SentiLR).

    The lexicon is a text of three columns separated by tabs. Rows of one word and part of speech are its senses, the
    commonest first, whose polarities are averaged, the first ones weighing most; how many words have rows of both
    signs is told. A word is of the part of speech of its first row, an inflected form of that of its base form. Tags
    that the texts had are replaced; their labels stay.

    Example:

      workbench prepare sentiment corpora/reviews --lexicon polarity.tsv --output corpora/reviews-tagged
    """
    opened = open_corpus(str(corpus))
    if "text" not in opened.manifest.fields:
        raise WorkbenchError(f"no record of {corpus} has a 'text' (they have {', '.join(opened.manifest.fields)})")
    with extra("kg"):
        from kg.lexicons.sentiment_lexicon import read_sentiment_lexicon
        from pipelines.preparing.coverage import polarities
        from pipelines.stages.sentiment_tags import TagSentiment
    _report(lexicon, read_sentiment_lexicon(lexicon))
    checksum = sha256_of(Path(lexicon))
    stage = TagSentiment(str(Path(lexicon).resolve()), checksum)
    about = {**opened.manifest.about, "sentiment": {"lexicon_sha256": checksum}}
    options.prepare(Conversion(CorpusReader(), (stage,)), [corpus], opened.kind, about=about)
    console.print(polarities(Corpus.open(options.output)))


def _report(path: str, lexicon: SentimentLexicon) -> None:
    """How many words there are, and of how many the rows contradict each other."""
    log.info("%s: %s words", path, f"{len(lexicon):,}")
    if lexicon.mixed:
        log.warning(
            "%s: %s words have rows of both signs, such as %s: taken for senses, the commonest first, and averaged; "
            "where they are none, keep one row of each",
            *(path, f"{len(lexicon.mixed):,}", ", ".join(lexicon.mixed[:3])),
        )
