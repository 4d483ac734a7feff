"""Text infilling (BART, arXiv:1910.13461, section 2.2): A B C D E -> A _ D _ E.

Spans whose lengths are drawn from a Poisson distribution are replaced with one mask token each; one of length 0 is a
mask token between two others. So the decoder learns how many tokens are missing. The lengths are counted in words, as
in the released code (the paper does not say); there spans may overlap, here they don't, and `rate` is met exactly.
"""

from __future__ import annotations

import numpy as np

from workbench.options.bounds import MeanSpan, SomeShare
from workbench.sequences.policies.span import span_at
from workbench.sequences.protocols import Noise
from workbench.sequences.rows import replace_spans
from workbench.sequences.selection import Selection
from workbench.sequences.sequence import Sequence
from workbench.text.tokenizer import Tokenizer


class Infill(Noise):
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
        selection = Selection(sequence, stream, self.rate, rng)
        empty = 0
        while selection.left > 0:
            length = int(rng.poisson(self.mean_span))
            anchor = int(selection.candidates[rng.integers(len(selection.candidates))])
            if not selection.free[anchor]:
                continue
            if length:
                selection.take([span_at(selection.free, selection.words, anchor, length)], cut=True)
            else:
                empty += 1
        between = np.flatnonzero(selection.free)
        between = rng.choice(between, min(empty, len(between)), replace=False)
        spans = [(int(rows[0]), int(rows[-1]) + 1) for rows in selection.groups] + [
            (int(row), int(row)) for row in between
        ]
        if spans:
            replace_spans(sequence, sorted(spans), stream, input_ids=self.mask_id)
