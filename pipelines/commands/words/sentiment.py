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
from workbench.corpora.stored_corpus import CorpusFolder

if TYPE_CHECKING:
    from kg.lexicons.sentiment_lexicon import SentimentLexicon

log = logging.getLogger(__name__)


def sentiment(
    corpus: Annotated[CorpusFolder, typer.Argument(help="Folder or URL of a text corpus.", show_default=False)],
    options: WritingOptions,
    lexicon: Annotated[
        Location, typer.Option(help="Lines of word, part of speech (n, v, a, r), polarity.", show_default=False)
    ],
) -> None:
    """Tag the words of texts with their part of speech and polarity (tags), for the transform kg.sentiment (SentiLR).

    The lexicon has three columns separated by tabs. Rows of the same word and part of speech are its senses, the most
    frequent first. Their polarities are averaged, the first ones with the largest weight. The command logs the number
    of words that have rows of both signs. A word has the part of speech of its first row, an inflected form that of its
    base form. Existing tags of the texts are replaced; their labels are kept.

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
    """Log the number of words, and of the words whose rows contradict each other."""
    log.info("%s: %s words", path, f"{len(lexicon):,}")
    if lexicon.mixed:
        log.warning(
            "%s: %s words have rows of both signs, such as %s: they are averaged as senses, the most frequent first; "
            "if they are not senses, keep one row for each word",
            *(path, f"{len(lexicon.mixed):,}", ", ".join(lexicon.mixed[:3])),
        )
