"""The stretches that the sample names (`mask_spans`), as a whole, then single tokens: a fact's object in a cloze."""

from __future__ import annotations

import numpy as np

from workbench.options.bounds import Share
from workbench.sequences.protocols import Policy
from workbench.sequences.selection import Selection, shuffled_spans
from workbench.sequences.sequence import Sequence


class Field(Policy):
    """`sequence.mask_spans` are selected whole, also beyond the rate; what is left of the rate goes to single tokens.

    Args:
        probability: of each stretch to be selected.
    """

    def __init__(self, probability: Share = 1.0) -> None:
        self.probability = probability

    def __call__(self, sequence: Sequence, stream: str, rate: float, rng: np.random.Generator) -> list[np.ndarray]:
        """Groups of token rows, the named stretches first."""
        selection = Selection(sequence, stream, rate, rng)
        named = [span for span in sequence.mask_spans if span.stream == stream]
        drawn = [span for span in named if rng.random() < self.probability]
        selection.take(shuffled_spans(drawn, rng), beyond=True)
        return selection.take_tokens(rng)
