"""Masking strategies: single tokens, whole words, spans, n-grams, entities, named stretches, rare tokens.

SpanBERT's spans: a length in words is drawn from the geometric distribution, clipped and normalised anew; an anchor is
drawn uniformly over the free tokens. The span begins at the anchor's word and takes words to the right until the
length, the end of the free stretch or the budget is reached (the budget may cut the last word). It may pass over spans
selected before it; spans that overlap or touch are one, as in the published code. The paper's p is 0.2 (that code's
default is 0.3).

N-grams: a length is drawn by its weight. The place is drawn uniformly among those with as many free neighbours; where
there is none the n-gram is shorter. So the lengths keep their shares however much is masked already.

Rare tokens (XLM): p(token) ~ frequency ** -exponent. Otherwise punctuation and stop words would be most of the
predicted tokens. The tokens of a sequence are drawn one after another without replacement; the published code draws
them from a whole batch at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Ge, Le, Len

from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Location, Name, NotNegative, PartShare, Share, SomeShare
from workbench.sequences.protocols import Masking
from workbench.sequences.selection import Selection, shuffled_spans, shuffled_words
from workbench.sequences.sequence import Sequence
from workbench.text.token_counts import read_token_counts
from workbench.text.tokenizer import Tokenizer


class TokenMasking(Masking):
    """Token masking: single tokens, uniformly (BERT, arXiv:1810.04805)."""

    def __call__(self, sequence: Sequence, stream: str, rate: float, rng: np.random.Generator) -> list[np.ndarray]:
        """Groups of token rows, in the order selected."""
        return Selection(sequence, stream, rate, rng).take_tokens(rng)


class WholeWordMasking(Masking):
    """Whole-word masking: all tokens of a word or none. The tokenizer's pre-tokenizer finds words; in Chinese and
    Japanese, a segmenter does (`segmenter` of the recipe)."""

    by_words = True

    def __call__(self, sequence: Sequence, stream: str, rate: float, rng: np.random.Generator) -> list[np.ndarray]:
        """Groups of token rows, one per word, in the order selected."""
        selection = Selection(sequence, stream, rate, rng)
        return selection.take(shuffled_words(selection, rng))


Longest = Annotated[int, Ge(1), Le(1000)]


def length_distribution(p: float, longest: int) -> np.ndarray:
    """Probabilities of the lengths 1..longest: p (1 - p)^(l - 1), normalised."""
    weights = p * (1 - p) ** np.arange(longest)
    return weights / weights.sum()


class SpanMasking(Masking):
    """Span masking: contiguous spans of whole words with geometric lengths (SpanBERT, arXiv:1907.10529, section 3.1).

    Args:
        p: parameter of the geometric distribution, in (0, 1).
        longest: greatest length in words.
    """

    by_words = True

    def __init__(self, p: PartShare = 0.2, longest: Longest = 10) -> None:
        self.cumulative = np.cumsum(length_distribution(p, longest))

    def __call__(self, sequence: Sequence, stream: str, rate: float, rng: np.random.Generator) -> list[np.ndarray]:
        """Groups of token rows, one per span, from left to right."""
        selection = Selection(sequence, stream, rate, rng)
        return merged(selection.take(self.proposed(selection, rng), cut=True))

    def proposed(self, selection: Selection, rng: np.random.Generator) -> Iterator[np.ndarray]:
        """The rows of one span after the other, each without rows that are selected already."""
        free, words, candidates = selection.free.copy(), selection.words, selection.candidates
        while selection.left > 0:
            length = int(np.searchsorted(self.cumulative, rng.random()))
            anchor = int(candidates[rng.integers(len(candidates))])
            if selection.free[anchor]:
                rows = span_at(free, words, anchor, length + 1)
                yield rows[selection.free[rows]]


def span_at(free: np.ndarray, words: np.ndarray, anchor: int, length: int) -> np.ndarray:
    """The rows of `length` words from the word of the row `anchor` on, within the free stretch."""
    start = anchor
    while start > 0 and free[start - 1] and words[start - 1] == words[anchor]:
        start -= 1
    return np.arange(start, _end(free, words, start, length))


def merged(groups: list[np.ndarray]) -> list[np.ndarray]:
    """The rows of all groups from left to right, neighbours in one group."""
    rows = np.sort(np.concatenate(groups)) if groups else np.zeros(0, np.int64)
    if not len(rows):
        return []
    return np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1)


def _end(free: np.ndarray, words: np.ndarray, start: int, length: int) -> int:
    """The row after `length` words from `start`, or after the free stretch."""
    row, seen = start, 0
    while row < len(free) and free[row]:
        seen += row == start or words[row] != words[row - 1]
        if seen > length:
            break
        row += 1
    return row


Weights = Annotated[list[NotNegative], Len(1, 100)]


class NgramMasking(Masking):
    """N-gram masking of tokens (UniLM, arXiv:1905.03197) or words (ALBERT, arXiv:1909.11942, equation 1). N-grams
    do not overlap.

    Args:
        lengths: weights of single units, bigrams, trigrams, ...: [8, 1, 1] masks one token four times out of five
            (UniLM), [6, 3, 2] is p(n) = (1/n) / (1 + 1/2 + 1/3) (ALBERT).
        unit: the unit of an n-gram; n-grams of words are not cut by the budget.

    Raises:
        WorkbenchError: no length has a weight.
    """

    def __init__(self, lengths: Weights, unit: Literal["token", "word"] = "token") -> None:
        if not sum(lengths):
            raise WorkbenchError(f"lengths = {lengths}; allowed: weights of which at least one is above 0")
        self.cumulative = np.cumsum(lengths) / sum(lengths)
        self.words = unit == "word"

    @classmethod
    def goes_by_words(cls, **options: Any) -> bool:
        """Whether its unit is a word."""
        return options.get("unit") == "word"

    def __call__(self, sequence: Sequence, stream: str, rate: float, rng: np.random.Generator) -> list[np.ndarray]:
        """Groups of token rows, one per n-gram, in the order selected."""
        selection = Selection(sequence, stream, rate, rng)
        return selection.take(self._ngrams(selection, rng), cut=not self.words)

    def _ngrams(self, selection: Selection, rng: np.random.Generator) -> Iterator[np.ndarray]:
        starts, ends = self._units(selection)
        free, next_to = np.ones(len(starts), np.bool_), starts[1:] == ends[:-1]
        while free.any():
            length = min(int(np.searchsorted(self.cumulative, rng.random(), side="right")), len(self.cumulative) - 1)
            places, found = _places(free, next_to, length + 1)
            first = int(places[rng.integers(len(places))])
            free[first : first + found] = False
            yield np.arange(starts[first], ends[first + found - 1])

    def _units(self, selection: Selection) -> tuple[np.ndarray, np.ndarray]:
        """The beginnings and ends of the free tokens or words, in rows."""
        rows = selection.candidates
        if not self.words or not len(rows):
            return rows, rows + 1
        new = (np.diff(selection.words[rows]) != 0) | (np.diff(rows) != 1)
        return rows[np.append(True, new)], rows[np.append(new, True)] + 1


def _places(free: np.ndarray, next_to: np.ndarray, length: int) -> tuple[np.ndarray, int]:
    """The units at which an n-gram of this length can begin, or of the greatest length below that fits; that length."""
    fits, found = free, 1
    for longer in range(2, length + 1):
        more = fits[:-1] & next_to[longer - 2 :] & free[longer - 1 :]
        if not more.any():
            break
        fits, found = more, longer
    return np.flatnonzero(fits), found


class EntityMasking(Masking):
    """Entity masking: whole entity mentions first, then single tokens (ERNIE, arXiv:1904.09223). The mentions in
    `sequence.spans` are selected in random order as far as they fit. Single tokens fill the rest of the rate.

    Args:
        control: the recipe's; under `no-kg` all of the rate is by token.
    """

    controls = ("no-kg",)
    unaffected_by = ("mentions-only",)  # which keeps the names at their places
    reads_spans = True

    def __init__(self, control: Name | None = None) -> None:
        self.linked = control != "no-kg"

    def __call__(self, sequence: Sequence, stream: str, rate: float, rng: np.random.Generator) -> list[np.ndarray]:
        """Groups of token rows, mentions first."""
        selection = Selection(sequence, stream, rate, rng)
        if self.linked:
            selection.take(shuffled_spans(sequence.spans_of(stream), rng))
        return selection.take_tokens(rng)


class FieldMasking(Masking):
    """Masking of the spans that the sample names in `mask_spans`: the object of a fact in a cloze, or phrases (ERNIE,
    arXiv:1904.09223, section 3.2). They are selected whole and in random order. Single tokens fill the rest of the
    rate.

    Args:
        probability: of each stretch to be selected.
        beyond: select also beyond the rate; otherwise stretches within it.
    """

    reads = ("mask_spans",)

    def __init__(self, probability: Share = 1.0, beyond: bool = True) -> None:
        self.probability, self.beyond = probability, beyond

    def __call__(self, sequence: Sequence, stream: str, rate: float, rng: np.random.Generator) -> list[np.ndarray]:
        """Groups of token rows, the named stretches first."""
        selection = Selection(sequence, stream, rate, rng)
        named = [span for span in sequence.mask_spans if span.stream == stream]
        drawn = [span for span in named if rng.random() < self.probability]
        selection.take(shuffled_spans(drawn, rng), beyond=self.beyond)
        return selection.take_tokens(rng)


class RareMasking(Masking):
    """Masking of single tokens, rare ones more often than frequent ones (XLM, arXiv:1901.07291, section 3.3). The
    probability is a power of the inverse frequency.

    Args:
        tokenizer: given by the recipe.
        counts: file of `workbench prepare token-counts`; a token that was not found counts as found once.
        exponent: 0.5 is the square root of the inverse frequency.
    """

    def __init__(self, tokenizer: Tokenizer, counts: Location, exponent: SomeShare = 0.5) -> None:
        self.weights = np.maximum(read_token_counts(counts, tokenizer), 1) ** -float(exponent)

    def __call__(self, sequence: Sequence, stream: str, rate: float, rng: np.random.Generator) -> list[np.ndarray]:
        """Groups of token rows, in the order selected."""
        selection = Selection(sequence, stream, rate, rng)
        rows = selection.candidates
        weights = self.weights[sequence.fields(stream)["input_ids"][rows]]
        order = np.argsort(rng.exponential(size=len(rows)) / weights)  # the smallest of exponentials: drawn by weight
        return selection.take(rows[order][:, None])
