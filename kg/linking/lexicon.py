"""Where words end in scripts without spaces, so that a name is not found across the ends of words or inside of one.

A text is cut into the words of a list that are the likeliest together: the path of the greatest sum of log p(word),
p(word) = count / sum of all counts (the unigram model; Sproat et al., "A stochastic finite-state word-segmentation
algorithm for Chinese", Computational Linguistics 1996). A character that is no word counts as seen once. K-BERT looks
entities up by the words of such a segmenter too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np

from kg.linking.gazetteer import UNSPACED

_RUN = re.compile("[" + "".join(f"{chr(first)}-{chr(last)}" for first, last in UNSPACED) + "]+")


class Lexicon:
    """Words and how often each occurs, as one list of each."""

    def __init__(self, words: Sequence[str], counts: np.ndarray) -> None:
        self.words, self.counts = words, counts
        whole = math.log(float(counts.sum()))
        self._weights = {word: math.log(count) - whole for word, count in zip(words, counts.tolist(), strict=True)}
        self._unknown = -whole
        self._longest = max(map(len, words))

    def within(self, text: str) -> set[int]:
        """The places between two characters of one word; of scripts with spaces none."""
        return {place for run in _RUN.finditer(text) for place in self._within(run.group(), run.start())}

    def _within(self, run: str, offset: int) -> set[int]:
        """Those in a run of characters of such scripts, counted from `offset`."""
        best, begins = [0.0], [0]
        for end in range(1, len(run) + 1):
            score, begin = best[end - 1] + self._weights.get(run[end - 1], self._unknown), end - 1
            for start in range(max(0, end - self._longest), end - 1):
                weight = self._weights.get(run[start:end])
                if weight is not None and best[start] + weight > score:
                    score, begin = best[start] + weight, start
            best.append(score)
            begins.append(begin)
        inner: set[int] = set()
        end = len(run)
        while end:
            inner.update(range(offset + begins[end] + 1, offset + end))
            end = begins[end]
        return inner
