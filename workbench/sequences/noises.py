"""Noises: damage to a text that an objective restores (BART, arXiv:1910.13461, section 2.2).

Token deletion: the decoder finds the places of the deleted tokens.

Deletion of a whole text: a decoder generates it from another stream (UniVL's "enhanced video representation",
arXiv:2002.06353, section 3.4).

Text infilling: spans whose lengths are drawn from a Poisson distribution are replaced with one mask token each; one of
length 0 is a mask token between two others. So the decoder learns the number of missing tokens. The lengths are counted
in words, as in the published code (the paper does not specify it). There spans may overlap; here they don't, and `rate`
is met exactly.

Sentence permutation: as in the paper, sentences end at full stops, here also at question and exclamation marks: at
tokens that white space or the end follows, so that "3.5" has none; marks of Chinese and Japanese need no space. A mark
that an earlier noise has masked ends none, so permute before infilling.

Document rotation: the decoder finds the beginning.
"""

from __future__ import annotations

import numpy as np

from workbench.core.keyed import Numbers
from workbench.core.options.bounds import MeanSpan, PartShare, SomeShare
from workbench.sequences.maskings import FreeWords
from workbench.sequences.protocols import Noise
from workbench.sequences.rows import drop, replace_spans, take
from workbench.sequences.segments import SentenceEnds
from workbench.sequences.selection import Selection, selectable
from workbench.sequences.sequence import Fields, Sequence
from workbench.text.tokenizer import Tokenizer


def stretches_of(fields: Fields) -> list[tuple[int, int]]:
    """The rows [start, end) between special ones: a text, or the segments of a pair."""
    edges = np.flatnonzero(np.diff(np.concatenate([[True], fields["special"], [True]])))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def tokens_at_random(sequence: Sequence, stream: str, rate: float, rng: np.random.Generator) -> np.ndarray:
    """The rows of a share of the free tokens [rows]."""
    selection = Selection([sequence], stream, rate, Numbers.of(rng))
    selection.take_tokens()
    return selection.groups.rows


class DeleteNoise(Noise):
    """Token deletion (BART, arXiv:1910.13461, section 2.2): A B C D E -> A C E. Random tokens are deleted.

    Args:
        rate: share of the free tokens.
    """

    def __init__(self, rate: PartShare) -> None:
        self.rate = rate

    def __call__(self, sequence: Sequence, stream: str, rng: np.random.Generator) -> None:
        rows = tokens_at_random(sequence, stream, self.rate, rng)
        if len(rows):
            drop(sequence, rows, stream)


class EmptyNoise(Noise):
    """Deletion of a whole text (UniVL, arXiv:2002.06353, section 3.4). All free tokens of a text are deleted, or none.

    Args:
        rate: the probability of deleting a text.
    """

    def __init__(self, rate: SomeShare) -> None:
        self.rate = rate

    def __call__(self, sequence: Sequence, stream: str, rng: np.random.Generator) -> None:
        rows = selectable(sequence.fields(stream)) if rng.random() < self.rate else np.zeros(0, np.int64)
        if len(rows):
            drop(sequence, rows, stream)


class InfillNoise(Noise):
    """Text infilling (BART, arXiv:1910.13461, section 2.2): A B C D E -> A _ D _ E. Each span of words becomes one mask
    token.

    Args:
        rate: share of the free tokens in these spans.
        mean_span: the mean of the Poisson distribution of their lengths, in words.
    """

    by_words = True

    def __init__(self, tokenizer: Tokenizer, rate: SomeShare, mean_span: MeanSpan = 3.0) -> None:
        self.rate, self.mean_span = rate, mean_span
        self.mask_id = tokenizer.id("mask")

    def __call__(self, sequence: Sequence, stream: str, rng: np.random.Generator) -> None:
        selection = Selection([sequence], stream, self.rate, Numbers.of(rng))
        empty = 0
        while selection.left > 0:
            length = rng.poisson(self.mean_span, 1)
            anchor = rng.choice(selection.candidates, 1)
            if not selection.free[anchor]:
                continue
            if length:
                words = FreeWords(selection.free, selection.words, selection.owners)
                selection.take(words.spans(anchor, length), cut=True)
            else:
                empty += 1
        between = np.flatnonzero(selection.free)
        between = rng.choice(between, min(empty, len(between)), replace=False)
        spans = [(int(rows[0]), int(rows[-1]) + 1) for rows in selection.groups.by_sequence(selection.starts)[0]]
        spans += [(int(row), int(row)) for row in between]
        if spans:
            replace_spans(sequence, sorted(spans), stream, input_ids=self.mask_id)


class MaskNoise(Noise):
    """Token masking (BART, arXiv:1910.13461, section 2.2): A B C D E -> A _ C _ E. Random tokens become the mask token.

    Args:
        rate: share of the free tokens.
    """

    def __init__(self, tokenizer: Tokenizer, rate: SomeShare) -> None:
        self.rate = rate
        self.mask_id = tokenizer.id("mask")

    def __call__(self, sequence: Sequence, stream: str, rng: np.random.Generator) -> None:
        text = sequence.fields(stream)
        rows = tokens_at_random(sequence, stream, self.rate, rng)
        text["input_ids"][rows] = self.mask_id
        text["taken"][rows] = True


class PermuteNoise(Noise):
    """Sentence permutation (BART, arXiv:1910.13461, section 2.2). Sentences change places.

    Args:
        rate: share of the sentences of each text that change places among each other.
    """

    def __init__(self, tokenizer: Tokenizer, rate: SomeShare) -> None:
        self.rate, self.sentences = rate, SentenceEnds(tokenizer)

    def __call__(self, sequence: Sequence, stream: str, rng: np.random.Generator) -> None:
        fields, rows = sequence.fields(stream), np.arange(sequence.length(stream))
        for start, end in stretches_of(fields):
            sentences = self.sentences.split(fields, rows[start:end].copy())
            moved = rng.permutation(len(sentences))[: round(self.rate * len(sentences))]
            order = np.arange(len(sentences))
            order[np.sort(moved)] = moved
            rows[start:end] = np.concatenate([sentences[i] for i in order])
        take(sequence, rows, stream)


class RotateNoise(Noise):
    """Document rotation (BART, arXiv:1910.13461, section 2.2): A B C D E -> C D E A B. The text begins with one of its
    tokens; all are equally likely.

    Args:
        rate: share of the texts.
    """

    def __init__(self, rate: SomeShare) -> None:
        self.rate = rate

    def __call__(self, sequence: Sequence, stream: str, rng: np.random.Generator) -> None:
        rows = np.arange(sequence.length(stream))
        for start, end in stretches_of(sequence.fields(stream)):
            if rng.random() < self.rate:
                rows[start:end] = np.roll(rows[start:end], -int(rng.integers(end - start)))
        take(sequence, rows, stream)
