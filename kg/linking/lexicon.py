"""Word segmentation of scripts without spaces, by a list of words with counts.

A text is cut into the words of a list that are the likeliest together: the path of the greatest sum of log p(word),
p(word) = count / sum of all counts (the unigram model; Sproat et al., "A stochastic finite-state word-segmentation
algorithm for Chinese", Computational Linguistics 1996). A character that is no word counts as seen once. K-BERT looks
entities up by the words of such a segmenter too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from kg.linking.word_ends import WordEnds

NEVER = -math.inf


class Lexicon(WordEnds):
    """Words and how often each occurs, as one list of each."""

    def __init__(self, words: Sequence[str], counts: np.ndarray) -> None:
        self.words, self.counts = words, counts
        whole = math.log(float(counts.sum()))
        self._unknown = -whole
        # what a piece of text weighs: a word; the beginning of one, which may be a single character
        self._weights = {word[:end]: NEVER for word in words for end in range(2, len(word))}
        self._weights |= {word[0]: self._unknown for word in words}
        logs = {count: math.log(count) - whole for count in set(counts.tolist())}  # shared: most words are rare
        self._weights |= {word: logs[count] for word, count in zip(words, counts.tolist(), strict=True)}

    def __str__(self) -> str:
        return f"a list of {len(self.words):,}"

    def _within(self, run: str, offset: int, wanted: Sequence[int]) -> Iterator[int]:
        weigh, unknown, end, last = self._weights.get, self._unknown, len(run), wanted[-1] - offset
        best, begins, reached = [0.0, *[-math.inf] * end], [0] * (end + 1), 0
        for begin in range(end):
            if begin >= last and reached <= begin:  # a word ends here in any case
                end = begin
                break
            score, stop = best[begin], begin + 1  # the score is complete when the loop comes to it
            weight = weigh(run[begin])
            alone = score + (unknown if weight is None else weight)
            if alone >= best[stop]:
                best[stop], begins[stop] = alone, begin
            while weight is not None and stop < end:
                stop += 1
                weight = weigh(run[begin:stop])
                if weight is not None and weight > NEVER:
                    if stop > reached:
                        reached = stop
                    if score + weight > best[stop]:
                        best[stop], begins[stop] = score + weight, begin
        ends = set()
        while end:
            ends.add(end + offset)
            end = begins[end]
        return (place for place in wanted if place not in ends)
