"""Whole entity mentions first, then single tokens (ERNIE's knowledge masking, arXiv:1904.09223)."""

from __future__ import annotations

import numpy as np

from workbench.options.bounds import Name
from workbench.sequences.protocols import Policy
from workbench.sequences.selection import Selection, shuffled_spans
from workbench.sequences.sequence import Sequence


class Entity(Policy):
    """Entity masking: whole entity mentions first, then single tokens (ERNIE, arXiv:1904.09223). The mentions in
    `sequence.spans` are selected in random order as far as they fit. Single tokens fill the rest of the rate.

    Args:
        control: the recipe's; under `no-kg` all of the rate is by token.
    """

    controls = ("no-kg",)
    unaffected_by = ("mentions-only",)  # where the names are stays
    reads_spans = True

    def __init__(self, control: Name | None = None) -> None:
        self.linked = control != "no-kg"

    def __call__(self, sequence: Sequence, stream: str, rate: float, rng: np.random.Generator) -> list[np.ndarray]:
        """Groups of token rows, mentions first."""
        selection = Selection(sequence, stream, rate, rng)
        if self.linked:
            selection.take(shuffled_spans(sequence.spans_of(stream), rng))
        return selection.take_tokens(rng)
