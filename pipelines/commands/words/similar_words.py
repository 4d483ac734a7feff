"""`prepare similar-words`: the nearest words of each word, by word vectors trained on corpora."""

from __future__ import annotations

import dataclasses
import logging
from importlib.metadata import version
from typing import Annotated

import typer

from pipelines.commands import options
from pipelines.preparing.corpus_reader import CorpusTexts
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Place, Size
from workbench.corpora.corpus import Corpus
from workbench.runs.output_places import OutputFile
from workbench.text.similar_words import save_similar_words
from workbench.text.tokenizer import Tokenizer
from workbench.text.word_vectors import WordVectorOptions, neighbours, train_word_vectors

log = logging.getLogger(__name__)


def similar_words(
    corpora: Annotated[list[Place], typer.Argument(help="Folders of corpora.", show_default=False)],
    output: Annotated[OutputFile, typer.Option("--output", "-o", help="File, .safetensors.", show_default=False)],
    tokenizer: Annotated[Place, typer.Option(help="The tokenizer of the recipe.", show_default=False)],
    training: WordVectorOptions,
    nearest: Annotated[Size, typer.Option(help="Most similar words of a word.")] = 10,
    limit: options.Limit = None,
) -> None:
    """Train word vectors (word2vec) on corpora, and store the nearest words of each word: `replace.similar` of mlm.

    A word is replaced only by words with as many tokens in the recipe's tokenizer.

    Examples:

      workbench prepare similar-words corpora/wiki --tokenizer tokenizer.json --output similar-words.safetensors

      workbench prepare similar-words corpora/wiki --tokenizer tokenizer.json -o near.safetensors --dim 200 --nearest 5
    """
    if output.suffix != ".safetensors":
        raise WorkbenchError(f"--output {output}: similar words are written to a .safetensors file; choose that suffix")
    opened = [Corpus.open(place) for place in corpora]
    cut = Tokenizer.load(tokenizer)
    words, vectors = train_word_vectors(CorpusTexts(opened, limit), cut, training)
    similar = neighbours(words, vectors, nearest)
    found = (similar >= 0).any(1).mean()
    if not found:
        raise WorkbenchError(
            f"no two of the {len(words)} words that occur {training.min_count} times have as many tokens, so no word "
            "can replace another; add text, or lower --min-count"
        )
    provenance = {
        **dataclasses.asdict(training),
        "nearest": nearest,
        "limit": limit,
        "corpora": {str(corpus.place): corpus.identity for corpus in opened},
        "gensim": version("gensim"),
    }
    save_similar_words(output, words, similar, cut.identity, provenance)
    log.info("%s: %d words, %.1f %% of them with similar ones", output, len(words), 100 * found)
