"""`prepare tokenizer`: a tokenizer trained on the texts of corpora, or one with more tokens."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

import typer

from pipelines.commands import options
from pipelines.preparing.corpus_reader import CorpusTexts, SmoothedTexts
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Location, Name, Share, Size
from workbench.corpora.corpus import Corpus
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
            CorpusTexts(opened, limit) if size_exponent == 1 else SmoothedTexts(opened, size_exponent, limit)
        )
        made = Tokenizer(train_tokenizer(texts, kind, vocab_size, lowercase=lowercase))
    made = made.with_tokens(add)
    written = made.save(output)
    log.info("%d tokens from %s: %s", made.vocab_size, start or ", ".join(corpora), written)
