"""`prepare tokenizer`: a tokenizer trained on corpora, or one with additional tokens."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Annotated, Literal

import typer

from pipelines.commands import options
from pipelines.preparing.corpus_reader import CorpusTexts, SmoothedTexts
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Name, Place, Share, Size
from workbench.corpora.corpus import Corpus
from workbench.runs.output_places import OutputFile
from workbench.text.tokenizer import Tokenizer, train_tokenizer

log = logging.getLogger(__name__)


def tokenizer(
    output: Annotated[OutputFile, typer.Option("--output", "-o", help="File, .json.", show_default=False)],
    corpora: Annotated[list[Place], typer.Argument(help="Folders of corpora.", show_default=False)] = [],  # noqa: B006
    start: Annotated[
        Place | None, typer.Option(help="Existing tokenizer to add tokens to, instead of training one.")
    ] = None,
    add: Annotated[
        list[Name], typer.Option(help="Additional token (a marker), appended after all others. Repeatable.")
    ] = [],  # noqa: B006
    kind: Annotated[
        Literal["wordpiece", "bpe", "unigram", "word"],
        typer.Option(help="Algorithm of subword tokens, or whole words."),
    ] = "wordpiece",
    vocab_size: Annotated[Size, typer.Option(help="Tokens, special ones included.")] = 30522,
    lowercase: Annotated[bool, typer.Option(help="Fold case before cutting words.")] = True,
    size_exponent: Annotated[
        Share,
        typer.Option(help="Sample corpora in proportion to size ** this; below 1, small corpora get more weight."),
    ] = 1.0,
    limit: options.Limit = None,
) -> None:
    """Train a tokenizer on texts, captions, questions, entity labels and descriptions of corpora, or add tokens to one.

    A run that is finetuned with the larger tokenizer (`finetune ... tokenizer=FILE`) keeps the vectors of its old
    tokens.

    Examples:

      workbench prepare tokenizer corpora/wiki --output tokenizer.json --vocab-size 8192

      workbench prepare tokenizer corpora/wiki corpora/coco -o tokenizer.json --kind bpe --no-lowercase

      workbench prepare tokenizer corpora/en corpora/sw -o tokenizer.json --kind bpe --size-exponent 0.5

      workbench prepare tokenizer corpora/wiki -o words.json --kind word --vocab-size 100000

      workbench prepare tokenizer --start runs/bert/tokenizer.json --add "[HD]" --add "[TL]" -o marked.json
    """
    if bool(corpora) == (start is not None) or (start is not None and not add):
        raise WorkbenchError(
            "there is neither a corpus nor --start; name corpora to train a tokenizer on, or a tokenizer (--start) "
            "to extend"
        )
    opened = [Corpus.open(place) for place in corpora]
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
