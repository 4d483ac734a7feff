"""`prepare token-counts`: the frequency of each token in corpora."""

from __future__ import annotations

import logging
from typing import Annotated

import numpy as np
import typer

from pipelines.commands import options
from pipelines.preparing.corpus_reader import CorpusTexts
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Place
from workbench.corpora.corpus import Corpus
from workbench.runs.output_places import OutputFile
from workbench.text.token_counts import save_token_counts
from workbench.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)
BATCH = 256


def token_counts(
    corpora: Annotated[list[Place], typer.Argument(help="Folders of corpora.", show_default=False)],
    output: Annotated[OutputFile, typer.Option("--output", "-o", help="File, .json.", show_default=False)],
    tokenizer: Annotated[Place, typer.Option(help="The tokenizer of the recipe.", show_default=False)],
    limit: options.Limit = None,
) -> None:
    """Count the tokens of corpora, for masking the rare ones more often: masking `rare` of mlm (XLM).

    Example:

      workbench prepare token-counts corpora/en corpora/fr --tokenizer tokenizer.json --output counts.json
    """
    opened = [Corpus.open(place) for place in corpora]
    cut = Tokenizer.load(tokenizer)
    counts = np.zeros(cut.vocab_size, np.int64)
    gathered: list[str] = []
    for text in CorpusTexts(opened, limit):
        gathered.append(text)
        if len(gathered) == BATCH:
            _count(cut, gathered, counts)
            gathered = []
    _count(cut, gathered, counts)
    if not counts.any():
        raise WorkbenchError(f"there is no token to count in {', '.join(corpora)}: their records have no texts")
    provenance = {"limit": limit, "corpora": {str(corpus.place): corpus.identity for corpus in opened}}
    save_token_counts(output, counts, cut.identity, provenance)
    log.info("%s: %s tokens, %s different ones", output, f"{counts.sum():,}", f"{(counts > 0).sum():,}")


def _count(tokenizer: Tokenizer, texts: list[str], counts: np.ndarray) -> None:
    for encoded in tokenizer.encode_batch(texts):
        np.add.at(counts, encoded.ids, 1)
