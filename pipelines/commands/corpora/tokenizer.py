"""`prepare tokenizer`: a tokenizer trained on the texts of corpora, or one with more tokens."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from pipelines.commands import options
from pipelines.commands.console import run
from pipelines.preparing.corpus_reader import all_samples
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Location, Name, Share, Size
from workbench.corpora.corpus import Corpus
from workbench.sequences.sequence import Sample
from workbench.text.tokenizer import Tokenizer, train_tokenizer

log = logging.getLogger(__name__)


def tokenizer(
    output: Annotated[Path, typer.Option("--output", "-o", help="The tokenizer's file (.json).", show_default=False)],
    corpora: Annotated[list[Location], typer.Argument(help="Folders of corpora.", show_default=False)] = [],  # noqa: B006
    start: Annotated[
        Location | None, typer.Option(help="A tokenizer that is taken as it is, in place of one trained on corpora.")
    ] = None,
    add: Annotated[
        list[Name], typer.Option(help="A token that texts may spell, after all others: a marker. Repeatable.")
    ] = [],  # noqa: B006
    kind: Annotated[Literal["wordpiece", "bpe", "unigram"], typer.Option(help="How words are cut.")] = "wordpiece",
    vocab_size: Annotated[Size, typer.Option(help="Tokens, special ones included.")] = 30522,
    lowercase: Annotated[bool, typer.Option(help="Fold case before cutting words.")] = True,
    size_exponent: Annotated[
        Share,
        typer.Option(help="Corpora count in proportion to size ** this; below 1 the small ones count for more."),
    ] = 1.0,
    limit: options.Limit = None,
) -> None:
    """Train a tokenizer on texts, captions, questions, entity labels and descriptions of corpora, or add tokens to one.

    A run that continues with more tokens (`finetune ... tokenizer=FILE`) keeps its vectors and gets new ones for these.

    Examples:

      workbench prepare tokenizer corpora/wiki --output tokenizer.json --vocab-size 8192

      workbench prepare tokenizer corpora/wiki corpora/coco -o tokenizer.json --kind bpe --no-lowercase

      workbench prepare tokenizer corpora/en corpora/sw -o tokenizer.json --kind bpe --size-exponent 0.5

      workbench prepare tokenizer --start runs/bert/tokenizer.json --add "[HD]" --add "[TL]" -o marked.json
    """
    if bool(corpora) == (start is not None) or (start is not None and not add):
        raise WorkbenchError("name corpora to train a tokenizer on, or with --start one that gets more tokens (--add)")
    opened = [Corpus.open(place) for place in corpora]
    from workbench.runs.output_places import check_apart  # torch takes seconds, and a missing corpus is told without

    try:
        check_apart(output)
    except WorkbenchError as error:
        raise type(error)(f"--output: {error}") from error
    if start is not None:
        made = Tokenizer.load(start)
    else:
        texts: Iterable[str] = (
            CorpusTexts(opened, limit) if size_exponent == 1 else Smoothed(opened, size_exponent, limit)
        )
        made = Tokenizer(train_tokenizer(texts, kind, vocab_size, lowercase=lowercase))
    made = made.with_tokens(add)
    written = made.save(output)
    log.info("%d tokens from %s: %s", made.vocab_size, start or ", ".join(corpora), written)


class CorpusTexts:
    """The texts of corpora, as often as asked, of their first `limit` records."""

    def __init__(self, corpora: Sequence[Corpus], limit: int | None = None) -> None:
        self.corpora = corpora
        self.limit = limit

    def __iter__(self) -> Iterator[str]:
        for sample in islice(chain.from_iterable(map(all_samples, self.corpora)), self.limit):
            yield from texts_of(sample)


class Smoothed:
    """The texts of corpora, as often as asked: as many characters as they have together, shared out in proportion to
    size ** `exponent`. Large corpora give their beginning, small ones are read several times (XLM, arXiv:1901.07291,
    section 3.1)."""

    def __init__(self, corpora: Sequence[Corpus], exponent: float, limit: int | None = None) -> None:
        self.each = [CorpusTexts([corpus], limit) for corpus in corpora]
        sizes = [sum(map(len, texts)) for texts in self.each]
        shares = [size**exponent if size else 0.0 for size in sizes]
        self.characters = [round(sum(sizes) * share / (sum(shares) or 1)) for share in shares]

    def __iter__(self) -> Iterator[str]:
        for texts, left in zip(self.each, self.characters, strict=True):
            endless = chain.from_iterable(repeat(texts))
            while left > 0:
                text = next(endless)[:left]
                yield text
                left -= len(text)


def texts_of(sample: Sample) -> Iterator[str]:
    """Everything in a sample that a tokenizer will meet."""
    yield from (sample[name] for name in ("text", "second") if name in sample)
    yield from sample.get("translations", {}).values()
    yield from sample.get("turns", [])
    yield from sample.get("choices", [])
    yield from sample.get("captions", [])
    questions: list[dict[str, Any]] = sample.get("questions", [])
    for question in questions:
        yield question["question"]
        yield from question["answers"]
    if "triples" in sample:
        yield from filter(None, (sample.get("label"), sample.get("description"), *sample.get("aliases", [])))
        yield from (triple.get("relation_text") or triple["relation"] for triple in sample["triples"])


if __name__ == "__main__":
    run(tokenizer)
