"""`prepare tokenizer`: a tokenizer trained on the texts of corpora."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from pipelines.commands import options
from pipelines.commands.console import run
from pipelines.preparing.corpus_reader import all_samples
from workbench.corpora.corpus import Corpus
from workbench.options.bounds import Location, Size
from workbench.sequences.sequence import Sample
from workbench.text.tokenizer import Tokenizer, train_tokenizer

log = logging.getLogger(__name__)


def tokenizer(
    corpora: Annotated[list[Location], typer.Argument(help="Folders of corpora.", show_default=False)],
    output: Annotated[Path, typer.Option("--output", "-o", help="The tokenizer's file (.json).", show_default=False)],
    kind: Annotated[Literal["wordpiece", "bpe", "unigram"], typer.Option(help="How words are cut.")] = "wordpiece",
    vocab_size: Annotated[Size, typer.Option(help="Tokens, special ones included.")] = 30522,
    lowercase: Annotated[bool, typer.Option(help="Fold case before cutting words.")] = True,
    limit: options.Limit = None,
) -> None:
    """Train a tokenizer on texts, captions, questions, entity labels and descriptions of corpora.

    Examples:

      workbench prepare tokenizer corpora/wiki --output tokenizer.json --vocab-size 8192

      workbench prepare tokenizer corpora/wiki corpora/coco -o tokenizer.json --kind bpe --no-lowercase
    """
    opened = [Corpus.open(place) for place in corpora]
    texts = Texts(opened, limit)
    trained = Tokenizer(train_tokenizer(texts, kind, vocab_size, lowercase=lowercase))
    written = trained.save(output)
    log.info("%d tokens from %s: %s", trained.vocab_size, ", ".join(corpora), written)


class Texts:
    """The texts of corpora, as often as asked, of their first `limit` records."""

    def __init__(self, corpora: Sequence[Corpus], limit: int | None = None) -> None:
        self.corpora = corpora
        self.limit = limit

    def __iter__(self) -> Iterator[str]:
        for sample in islice(chain.from_iterable(map(all_samples, self.corpora)), self.limit):
            yield from texts_of(sample)


def texts_of(sample: Sample) -> Iterator[str]:
    """Everything in a sample that a tokenizer will meet."""
    if "text" in sample:
        yield sample["text"]
    yield from sample.get("captions", [])
    questions: list[dict[str, Any]] = sample.get("questions", [])
    for question in questions:
        yield question["question"]
        yield from question["answers"]
    if "triples" in sample:
        yield from filter(None, (sample.get("label"), sample.get("description"), *sample.get("aliases", [])))
        yield from (triple["relation_text"] for triple in sample["triples"])


if __name__ == "__main__":
    run(tokenizer)
