"""Vectors of words from the characters that they are built from (Bojanowski et al., arXiv:1607.04606), with gensim.

Such a model has a vector of every word, whether its texts have it or not; a name of several words has the mean of
theirs. They lie in a file of vectors (`kg.vectors.vectors`) whose ids are the names, in small letters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kg.vectors.vectors import GraphVectors, load_vectors, save_vectors
from workbench.core.errors import WorkbenchError
from workbench.text.word_vectors import WordVectorOptions, skip_gram

WORD = re.compile(r"\w+")
BUCKETS = 200_000
"""Rows of the table of character n-grams."""


class WordVectors:
    """The vectors of a file, of length 1. Pickles as its path."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._found = load_vectors(path)

    def __reduce__(self) -> tuple[type[WordVectors], tuple[Path]]:
        return WordVectors, (self.path,)

    @cached_property
    def _rows(self) -> Any:
        return self._found.rows

    def of(self, words: Sequence[str]) -> np.ndarray:
        """[words, size] float32.

        Raises:
            WorkbenchError: the file has no vector of one of them.
        """
        rows = []
        for word in words:
            row = self._rows.get(word.lower())
            if row is None:
                raise WorkbenchError(
                    f"{self.path} has no vector of {word!r}; `workbench prepare word-pairs` writes those of the words "
                    "of a corpus of pairs next to it: name that file"
                )
            rows.append(row)
        return self._found.vectors[rows].numpy()


def save_word_vectors(
    path: Path, words: Sequence[str], texts: Iterable[str], options: WordVectorOptions, provenance: dict[str, Any]
) -> None:
    """Train vectors on texts, and write those of words.

    Raises:
        WorkbenchError: no word occurs often enough in the texts, or gensim is not installed.
    """
    found = _trained(_Sentences(texts), options)
    table = np.stack([_mean([found[part] for part in _words(word)], options.dim) for word in words])
    unit = table / np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-12)
    vectors, none = torch.from_numpy(unit.astype(np.float32)), torch.zeros(0, options.dim)
    save_vectors(GraphVectors([word.lower() for word in words], vectors, [], none, provenance), path)


class _Sentences:
    """The texts as lists of words, as often as asked."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = texts

    def __iter__(self) -> Iterator[list[str]]:
        return (_words(text) for text in self.texts)


def _trained(sentences: _Sentences, options: WordVectorOptions) -> Any:
    """gensim's vectors by word."""
    model = skip_gram(options, "FastText", bucket=BUCKETS)
    model.build_vocab(sentences)
    if not len(model.wv):
        raise WorkbenchError(
            f"no word occurs {options.min_count} times in the texts; give more text or a smaller --min-count"
        )
    model.train(sentences, total_examples=model.corpus_count, epochs=options.epochs)
    return model.wv


def _words(text: str) -> list[str]:
    return WORD.findall(text.lower())


def _mean(vectors: list[np.ndarray], size: int) -> np.ndarray:
    return np.mean(vectors, axis=0) if vectors else np.zeros(size, np.float32)
