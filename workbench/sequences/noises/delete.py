"""Token deletion (BART, arXiv:1910.13461, section 2.2): A B C D E -> A C E. The decoder finds out where some were."""

from __future__ import annotations

import numpy as np

from workbench.options.bounds import PartShare
from workbench.sequences.protocols import Noise
from workbench.sequences.rows import drop
from workbench.sequences.selection import Selection
from workbench.sequences.sequence import Sequence


class Delete(Noise):
    """Token deletion (BART, arXiv:1910.13461, section 2.2): A B C D E -> A C E. Random tokens are deleted.

    Args:
        rate: share of the free tokens.
    """

    def __init__(self, rate: PartShare) -> None:
        self.rate = rate

    def __call__(self, sequence: Sequence, stream: str, rng: np.random.Generator) -> None:
        groups = Selection(sequence, stream, self.rate, rng).take_tokens(rng)
        if groups:
            drop(sequence, np.concatenate(groups), stream)
