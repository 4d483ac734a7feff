"""BM25 over an inverted index in memory (Robertson and Zaragoza, 2009), with Lucene's inverse document frequency.

    score(q, d) = sum over words w of q of idf(w) f (k1 + 1) / (f + k1 (1 - b + b |d| / mean |d|))
    idf(w) = log(1 + (N - n + 1/2) / (n + 1/2))

f is the number of times that w is in d, |d| the number of d's words, n the number of the N documents with w.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

import numpy as np

K1, B = 0.9, 0.4  # as BEIR's baseline
WORD = re.compile(r"\w+")


class Bm25:
    """The scores of documents for queries; words are those of `\\w+`, in lower case.

    Args:
        documents: their texts.
    """

    def __init__(self, documents: Iterable[str]) -> None:
        places: dict[str, list[tuple[int, int]]] = {}
        lengths = []
        for number, text in enumerate(documents):
            words = words_of(text)
            lengths.append(len(words))
            for word, count in Counter(words).items():
                places.setdefault(word, []).append((number, count))
        self.size = np.array(lengths, float)
        self.norms = K1 * (1 - B + B * self.size / max(self.size.mean(), 1.0)) if lengths else self.size
        self.places = {word: np.array(found) for word, found in places.items()}

    def scores(self, query: str) -> np.ndarray:
        """The score of each document [documents]."""
        scores = np.zeros(len(self.size))
        for word, times in Counter(words_of(query)).items():
            if word in self.places:
                rows, counts = self.places[word].T
                idf = np.log(1 + (len(self.size) - len(rows) + 0.5) / (len(rows) + 0.5))
                scores[rows] += times * idf * counts * (K1 + 1) / (counts + self.norms[rows])
        return scores


def words_of(text: str) -> list[str]:
    """The words of a text."""
    return WORD.findall(text.lower())
