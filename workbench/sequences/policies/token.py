"""Single tokens, uniformly (BERT, arXiv:1810.04805)."""

from __future__ import annotations

import numpy as np

from workbench.sequences.protocols import Policy
from workbench.sequences.selection import Selection
from workbench.sequences.sequence import Sequence


class Token(Policy):
    """Token masking: single tokens, uniformly (BERT, arXiv:1810.04805)."""

    def __call__(self, sequence: Sequence, stream: str, rate: float, rng: np.random.Generator) -> list[np.ndarray]:
        """Groups of token rows, in the order selected."""
        return Selection(sequence, stream, rate, rng).take_tokens(rng)
