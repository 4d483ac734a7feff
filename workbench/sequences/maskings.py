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

from collections.abc import Sequence as Listing
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Ge, Le, Len

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Numbers
from workbench.core.options.bounds import Location, Name, NotNegative, PartShare, Share, SomeShare
from workbench.sequences.protocols import Masking
from workbench.sequences.selection import RowGroups, Selection, ranges
from workbench.sequences.sequence import Sequence
from workbench.text.token_counts import read_token_counts
from workbench.text.tokenizer import Tokenizer


class TokenMasking(Masking):
    """Token masking: single tokens, uniformly (BERT, arXiv:1810.04805)."""

    def __call__(self, sequences: Listing[Sequence], stream: str, rate: float, numbers: Numbers) -> RowGroups:
        """Groups of token rows, in the order selected."""
        selection = Selection(sequences, stream, rate, numbers)
        selection.take_tokens()
        return selection.groups


class WholeWordMasking(Masking):
    """Whole-word masking: all tokens of a word or none. The tokenizer's pre-tokenizer finds words; in Chinese and
    Japanese, a segmenter does (`segmenter` of the recipe)."""

    by_words = True

    def __call__(self, sequences: Listing[Sequence], stream: str, rate: float, numbers: Numbers) -> RowGroups:
        """Groups of token rows, one per word, in the order selected."""
        selection = Selection(sequences, stream, rate, numbers)
        selection.take(selection.shuffled_words())
        return selection.groups


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

    def __call__(self, sequences: Listing[Sequence], stream: str, rate: float, numbers: Numbers) -> RowGroups:
        """Groups of token rows, one per span, from left to right."""
        selection = Selection(sequences, stream, rate, numbers)
        words = FreeWords(selection.free, selection.words, selection.owners)
        counts = selection.counted(selection.candidates)
        first = np.cumsum(counts) - counts
        while (open_ := selection.left > 0).any():
            lengths = np.searchsorted(self.cumulative, numbers.random(open_.astype(np.int64))) + 1
            places = first[open_] + numbers.integers(counts[open_], open_.astype(np.int64))
            hit = selection.free[anchors := selection.candidates[places]]
            spans = words.spans(anchors[hit], lengths[hit])
            selection.take(spans.where(selection.free[spans.rows]), cut=True, more=True)
        return merged(selection.groups)


class FreeWords:
    """The words of free rows, and the stretches that they form.

    Args:
        free, words, owners: of the rows of several sequences, as of `Selection`.
    """

    def __init__(self, free: np.ndarray, words: np.ndarray, owners: np.ndarray) -> None:
        follows = np.zeros(len(free), np.bool_)  # the row before, in a stretch of free ones
        follows[1:] = free[1:] & free[:-1] & (owners[1:] == owners[:-1])
        new = free & ~follows
        new[1:] |= follows[1:] & (words[1:] != words[:-1])
        self.owners = owners
        self.word = np.cumsum(new) - 1
        self.begins = np.flatnonzero(new)
        self.ends = (
            self.begins + np.add.reduceat(free.astype(np.int64), self.begins) if len(self.begins) else self.begins
        )
        last = np.flatnonzero(~np.append(follows, False)[self.ends])  # the words at the ends of stretches
        self.last = last[np.searchsorted(last, np.arange(len(self.begins)))]

    def spans(self, anchors: np.ndarray, lengths: np.ndarray) -> RowGroups:
        """From the word of each anchor on, so many words, at most up to the end of their stretch."""
        first = self.word[anchors]
        begins, ends = self.begins[first], self.ends[np.minimum(first + lengths - 1, self.last[first])]
        return RowGroups(ranges(begins, ends - begins), ends - begins, self.owners[anchors])


def merged(groups: RowGroups) -> RowGroups:
    """The rows of all groups from left to right, neighbours of one sequence in one group."""
    of, rows = np.repeat(groups.of, groups.sizes), np.sort(groups.rows)  # sorted, the rows of a sequence stay together
    first = np.flatnonzero((np.diff(rows, prepend=-2) > 1) | (np.diff(of, prepend=-1) != 0))
    return RowGroups(rows, np.diff(first, append=len(rows)), of[first])


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

    def __call__(self, sequences: Listing[Sequence], stream: str, rate: float, numbers: Numbers) -> RowGroups:
        """Groups of token rows, one per n-gram, in the order selected."""
        selection = Selection(sequences, stream, rate, numbers)
        begins, ends = self._units(selection)
        of = selection.owners[begins]
        free = np.ones(len(begins), np.bool_)
        apart = np.append((begins[1:] != ends[:-1]) | (of[1:] != of[:-1]), True)  # from the unit after each
        while (open_ := (selection.left > 0) & (np.bincount(of[free], minlength=len(selection.left)) > 0)).any():
            once = open_.astype(np.int64)
            drawn = np.searchsorted(self.cumulative, numbers.random(once), side="right")
            wanted = np.zeros(len(open_), np.int64)
            wanted[open_] = np.minimum(drawn, len(self.cumulative) - 1) + 1
            run = _run_lengths(free, apart)
            longest = np.zeros(len(open_), np.int64)
            np.maximum.at(longest, of, run)
            sizes = np.minimum(wanted, longest)
            places = np.flatnonzero(open_[of] & (run >= sizes[of]))
            counts = np.bincount(of[places], minlength=len(open_))
            first = places[(np.cumsum(counts) - counts)[open_] + numbers.integers(counts[open_], once)]
            sizes = sizes[open_]
            free[ranges(first, sizes)] = False
            rows = ends[first + sizes - 1] - begins[first]
            selection.take(RowGroups(ranges(begins[first], rows), rows, of[first]), cut=not self.words, more=True)
        selection.settle()
        return selection.groups

    def _units(self, selection: Selection) -> tuple[np.ndarray, np.ndarray]:
        """The beginnings and ends of the free tokens or words, in rows."""
        rows = selection.candidates
        if not self.words:
            return rows, rows + 1
        words = FreeWords(selection.free, selection.words, selection.owners)
        return words.begins, words.ends


def _run_lengths(free: np.ndarray, apart: np.ndarray) -> np.ndarray:
    """The number of free neighbours from each unit on, itself included [units]; 0 for one that is not free."""
    ends = np.flatnonzero(apart | ~np.append(free, False)[1:])
    run: np.ndarray = np.where(free, ends[np.searchsorted(ends, np.arange(len(free)))] + 1 - np.arange(len(free)), 0)
    return run


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

    def __call__(self, sequences: Listing[Sequence], stream: str, rate: float, numbers: Numbers) -> RowGroups:
        """Groups of token rows, mentions first."""
        selection = Selection(sequences, stream, rate, numbers)
        if self.linked:
            selection.take(selection.shuffled_spans([sequence.spans_of(stream) for sequence in sequences]))
        selection.take_tokens()
        return selection.groups


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

    def __call__(self, sequences: Listing[Sequence], stream: str, rate: float, numbers: Numbers) -> RowGroups:
        """Groups of token rows, the named stretches first."""
        selection = Selection(sequences, stream, rate, numbers)
        named = [[span for span in sequence.mask_spans if span.stream == stream] for sequence in sequences]
        drawn = iter(numbers.random(np.array([len(own) for own in named], np.int64)) < self.probability)
        chosen = [[span for span in own if next(drawn)] for own in named]
        selection.take(selection.shuffled_spans(chosen), beyond=self.beyond)
        selection.take_tokens()
        return selection.groups


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

    def __call__(self, sequences: Listing[Sequence], stream: str, rate: float, numbers: Numbers) -> RowGroups:
        """Groups of token rows, in the order selected."""
        selection = Selection(sequences, stream, rate, numbers)
        selection.take_tokens(weights=self.weights[selection.column("input_ids")])
        return selection.groups
