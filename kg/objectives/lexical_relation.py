"""Lexical relation classification: whether two words are related (LIBERT, arXiv:1909.02339).

The pairs (w1, w2) of the corpus are synonyms, or a word and its hypernym. Of each are made two false ones from the
words of its micro-batch,

    (v, w2)   v the word nearest to w2        (w1, v)   v the word nearest to w1

by the cosine of static vectors, where v is none of the two and not paired with the word that stays. With p the pooled
output of a pair, the probability that it is related is softmax(W p + b)[true].
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kg.lexicons.word_vectors import WordVectors
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Dropout, Location, Word
from workbench.objectives.classify import Classify
from workbench.sequences.missing_fields import missing
from workbench.sequences.sequence import Sample

LABEL, FALSE, TRUE = "related", "false", "true"


class LexicalRelation(Classify):
    """Lexical relation classification (LIBERT, arXiv:1909.02339): related words against similar false pairs.

    Args:
        vectors: file of `workbench prepare word-pairs`: static vectors of the words.
        stream, dropout: as for `classify`.
    """

    reads = ("second",)
    prepared_by = "workbench prepare word-pairs GRAPH --texts CORPUS --output PAIRS"

    def __init__(self, vectors: Location | WordVectors, stream: Word = "text", dropout: Dropout = 0.1) -> None:
        super().__init__([FALSE, TRUE], LABEL, stream, dropout)
        self.vectors = vectors if isinstance(vectors, WordVectors) else WordVectors(vectors)

    def arrange(self, samples: list[Sample], draws: Draws) -> list[Sample]:
        """Each pair, its false ones behind it; a pair has none where every word is paired with it."""
        for sample in samples:
            if not isinstance(sample.get("second"), str):
                raise missing(sample, "second")
        pairs = [(sample["text"], sample["second"]) for sample in samples]
        made = []
        for sample, false in zip(samples, _false_pairs(pairs, self.vectors), strict=True):
            both = [(sample["text"], sample["second"], TRUE), *((*pair, FALSE) for pair in false)]
            for number, (first, second, label) in enumerate(both):
                draw = (*sample.get("draw", ()), number)
                labels = {**sample.get("labels", {}), LABEL: label}
                made.append({**sample, "text": first, "second": second, "labels": labels, "draw": draw})
        return made


def _false_pairs(pairs: list[tuple[str, str]], vectors: WordVectors) -> Iterator[list[tuple[str, str]]]:
    """The false pairs of each."""
    words = list(dict.fromkeys(word for pair in pairs for word in pair))
    row = {word: number for number, word in enumerate(words)}
    found = vectors.of(words)
    nearness = found @ found.T
    np.fill_diagonal(nearness, -np.inf)
    for first, second in pairs:
        nearness[row[first], row[second]] = nearness[row[second], row[first]] = -np.inf
    for first, second in pairs:
        to_second, to_first = nearness[row[second]].copy(), nearness[row[first]].copy()
        to_second[row[first]] = to_first[row[second]] = -np.inf
        false = [(words[int(to_second.argmax())], second)] if np.isfinite(to_second).any() else []
        yield false + ([(first, words[int(to_first.argmax())])] if np.isfinite(to_first).any() else [])
