"""The stretches that the sample names (`mask_spans`), as a whole, then single tokens: a fact's object in a cloze, or
phrases (ERNIE's phrase-level masking, arXiv:1904.09223, section 3.2)."""

from __future__ import annotations

import numpy as np

from workbench.options.bounds import Share
from workbench.sequences.protocols import Policy
from workbench.sequences.selection import Selection, shuffled_spans
from workbench.sequences.sequence import Sequence


class Field(Policy):
    """Masking of the spans that the sample names in `mask_spans`: the object of a fact in a cloze, or phrases (ERNIE,
    arXiv:1904.09223, section 3.2). They are selected whole and in random order. Single tokens fill the rest of the
    rate.

    Args:
        probability: of each stretch to be selected.
        beyond: also beyond the rate; or else as far as they fit into it.
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
