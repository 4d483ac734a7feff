"""Document rotation (BART, arXiv:1910.13461, section 2.2): A B C D E -> C D E A B. The decoder finds the beginning."""

from __future__ import annotations

import numpy as np

from workbench.options.bounds import SomeShare
from workbench.sequences.noises._stretches import stretches_of
from workbench.sequences.protocols import Noise
from workbench.sequences.rows import take
from workbench.sequences.sequence import Sequence


class Rotate(Noise):
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
