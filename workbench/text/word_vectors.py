"""Word vectors of a corpus (word2vec, Mikolov et al., arXiv:1301.3781), with gensim, and nearest neighbours of words.

A word is a unit of the tokenizer's pre-tokenizer, as the ids of its tokens.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Count, Seed, Size
from workbench.text.tokenizer import Encoding, Tokenizer

Words = list[tuple[int, ...]]
BATCH = 256
"""The batch size of encoding texts and of finding neighbours of words."""


@dataclass(frozen=True, kw_only=True)
class WordVectorOptions:
    """The skip-gram model of word2vec and its training."""

    dim: Annotated[Size, typer.Option(help="Size of the vectors.")] = 100
    window: Annotated[Count, typer.Option(help="Words on each side that a word predicts.")] = 5
    min_count: Annotated[Count, typer.Option(help="Words that occur less often are left out.")] = 5
    epochs: Annotated[Count, typer.Option(help="Passes over the texts.")] = 5
    seed: Seed = 0


def skip_gram(options: WordVectorOptions, model: str = "Word2Vec", **more: Any) -> Any:
    """An untrained skip-gram model of gensim, which returns the same vectors for the same texts.

    Args:
        model: the class of `gensim.models`.
        more: options of that class.

    Raises:
        WorkbenchError: gensim is not installed.
    """
    try:
        from gensim import models
    except ModuleNotFoundError as error:
        raise WorkbenchError(
            "training word vectors needs the package 'gensim': pip install 'pretraining-workbench[text]'"
        ) from error
    logging.getLogger("gensim").setLevel(logging.WARNING)  # it logs every second of its training
    return getattr(models, model)(
        vector_size=options.dim,
        window=options.window,
        min_count=options.min_count,
        seed=options.seed,
        sg=1,
        **more,
        workers=1,  # with more workers the order of updates depends on the machine
    )


def train_word_vectors(
    texts: Iterable[str], tokenizer: Tokenizer, options: WordVectorOptions
) -> tuple[Words, np.ndarray]:
    """The words of the texts, the commonest first, and their vectors [words, dim]; the same for the same arguments.

    Words with an unknown token are left out.

    Raises:
        WorkbenchError: no word occurs often enough, or gensim is not installed.
    """
    model = skip_gram(options)
    from gensim.models.word2vec import LineSentence

    with tempfile.TemporaryDirectory() as folder:
        lines = Path(folder) / "words.txt"
        with lines.open("w", encoding="ascii") as file:
            file.writelines(f"{line}\n" for line in _lines(texts, tokenizer))
        model.build_vocab(LineSentence(str(lines)))
        if not len(model.wv):
            raise WorkbenchError(
                f"no word occurs {options.min_count} times in the texts; give more text or a smaller min_count"
            )
        model.train(LineSentence(str(lines)), total_examples=model.corpus_count, epochs=options.epochs)
    words = [tuple(int(token) for token in key.split("_")) for key in model.wv.index_to_key]
    return words, np.asarray(model.wv.vectors, np.float32)


def neighbours(words: Words, vectors: np.ndarray, nearest: int) -> np.ndarray:
    """[words, nearest]: the places of the most similar words (by cosine) with as many tokens, -1 after the last."""
    import torch  # takes seconds, and the command refuses wrong inputs without it

    similar = np.full((len(words), nearest), -1, np.int64)
    unit = torch.nn.functional.normalize(torch.from_numpy(vectors), dim=1)
    lengths = np.array([len(word) for word in words])
    for length in np.unique(lengths).tolist():
        places = torch.from_numpy(np.flatnonzero(lengths == length))
        for block in places.split(BATCH):
            scores = unit[block] @ unit[places].T
            scores[block[:, None] == places] = -torch.inf
            best = scores.topk(min(nearest, len(places) - 1), 1).indices
            similar[block, : best.shape[1]] = places[best].numpy()
    return similar


def _lines(texts: Iterable[str], tokenizer: Tokenizer) -> Iterator[str]:
    """Each text as a line of words, a word as the ids of its tokens joined by "_"."""
    waiting = iter(texts)
    unknown = tokenizer.id("unk") if tokenizer.has("unk") else -1
    while batch := list(islice(waiting, BATCH)):
        for encoded in tokenizer.encode_batch(batch):
            yield " ".join("_".join(map(str, word)) for word in _words(encoded) if unknown not in word)


def _words(encoded: Encoding) -> list[list[int]]:
    """The ids of the tokens of each word."""
    ends = np.flatnonzero(np.diff(encoded.words)) + 1
    return [word.tolist() for word in np.split(encoded.ids, ends)] if len(encoded) else []
