"""`prepare text`: documents -> a text corpus."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from pipelines.commands.options import CleaningOptions
from pipelines.stages import Stage
from pipelines.stages.text_cleaning import LetterShare, MinimumLength, NormaliseText, RepeatedLines, SetLanguage
from workbench.core.options.bounds import CountOrZero, Share, Word


def text(
    options: CleaningOptions,
    normalise: Annotated[Literal["NFC", "NFKC", "none"], typer.Option(help="Unicode form: NFC, NFKC or none.")] = "NFC",
    min_length: Annotated[CountOrZero, typer.Option(help="Fewest characters of a document (without white space).")] = 1,
    min_letters: Annotated[Share | None, typer.Option(help="Least share of letters (0 to 1).")] = None,
    max_repeated: Annotated[Share | None, typer.Option(help="Largest share of repeated lines (Gopher: 0.3).")] = None,
    language: Annotated[Word | None, typer.Option(help="Language of the texts (en) where a record names none.")] = None,
) -> None:
    """Convert documents (plain or parallel text, JSON lines, tables, linked text, relations, ...) into a text corpus.

    Texts that carry character spans (links, typed mentions) are stored as they are.

    Examples:

      workbench prepare text books/*.jsonl.zst --output corpora/books --split held-out=0.05

      workbench prepare text notes/ --output corpora/notes --option document=file

      workbench prepare text train.en train.de --output corpora/en-de

      workbench prepare text news.fr -o corpora/news-fr --option document=line --language fr

      workbench prepare text mnli/train.tsv -o corpora/mnli --option 'fields={labels: [gold_label]}'

      workbench prepare text wordnet/dict -o corpora/senses

      workbench prepare text news.jsonl -o corpora/news --option text_field=body --min-length 200 --dedupe
    """
    stages = text_stages(normalise, min_length, min_letters, max_repeated)
    options.read("text", stages if language is None else [*stages, SetLanguage(language)])


def text_stages(normalise: str, min_length: int, min_letters: float | None, max_repeated: float | None) -> list[Stage]:
    """The stages of a document, in order."""
    stages: list[Stage] = []
    if normalise != "none":
        stages.append(NormaliseText("NFKC" if normalise == "NFKC" else "NFC"))
    stages.append(MinimumLength(min_length))
    if min_letters is not None:
        stages.append(LetterShare(min_letters))
    if max_repeated is not None:
        stages.append(RepeatedLines(max_repeated))
    return stages
