"""A text that is left out altogether, now and then: a decoder then writes it from another stream (UniVL's "enhanced
video representation", arXiv:2002.06353, section 3.4)."""

from __future__ import annotations

import numpy as np

from workbench.options.bounds import SomeShare
from workbench.sequences.protocols import Noise
from workbench.sequences.rows import drop
from workbench.sequences.selection import selectable
from workbench.sequences.sequence import Sequence


class Empty(Noise):
    """Deletion of a whole text (UniVL, arXiv:2002.06353, section 3.4). All free tokens of a text are deleted, or none.

    Args:
        rate: the probability with which a text is left out.
    """

    def __init__(self, rate: SomeShare) -> None:
        self.rate = rate

    def __call__(self, sequence: Sequence, stream: str, rng: np.random.Generator) -> None:
        rows = selectable(sequence.fields(stream)) if rng.random() < self.rate else np.zeros(0, np.int64)
        if len(rows):
            drop(sequence, rows, stream)
