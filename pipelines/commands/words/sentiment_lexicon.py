"""`prepare sentiment-lexicon`: the polarity of words by part of speech, from a published lexicon."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer

from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import write_text
from workbench.core.packages import extra
from workbench.runs.output_places import OutputFile

log = logging.getLogger(__name__)


def sentiment_lexicon(
    source: Annotated[
        Path, typer.Argument(help="SentiWordNet's text, or the XML of TextBlob or pattern.", show_default=False)
    ],
    output: Annotated[OutputFile, typer.Option("--output", "-o", help="File, .tsv.", show_default=False)],
    senses: Annotated[
        Path | None, typer.Option(help="WordNet's index.sense: frequencies of parts of speech, and more words.")
    ] = None,
) -> None:
    """Write the polarity of words by part of speech and sense as a table, for `prepare sentiment --lexicon` (SentiLR).

    A row is word, part of speech (n, v, a, r), polarity. The senses of a word are in the order of their rank, its most
    frequent part of speech first: by the counts of --senses, else by the number of senses. With --senses all words of
    WordNet have a part of speech; words without a polarity get 0.

    Examples:

      workbench prepare sentiment-lexicon SentiWordNet_3.0.0.txt --senses dict/index.sense --output polarity.tsv

      workbench prepare sentiment-lexicon textblob/en/en-sentiment.xml -o polarity.tsv
    """
    if output.suffix != ".tsv":
        raise WorkbenchError(f"--output {output}: a sentiment lexicon is written to a .tsv file; choose that suffix")
    with extra("kg"):
        from kg.lexicons.sentiment_sources import read_polarities
    found = read_polarities(source, senses)
    rows = list(found.rows())
    write_text(output, "".join(f"{word}\t{part}\t{polarity:g}\n" for word, part, polarity in rows))
    words = {word for word, _, _ in rows}
    felt = {word for word, _, polarity in rows if polarity}
    log.info("%s: %s words, %s with a polarity", output, f"{len(words):,}", f"{len(felt):,}")
    for reason, count in found.left_out.most_common():
        log.info("%s: left out %s, %s", source, f"{count:,}", reason)
