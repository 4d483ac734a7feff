"""Steps on the sequences of image-text pairs."""

from __future__ import annotations

import numpy as np

from workbench.keyed import Draws
from workbench.sequences.protocols import Step
from workbench.sequences.sequence import Sequence


class CausalText(Step):
    """Each text token sees itself and those before it (CLIP's text encoder); other streams stay as they are."""

    def __call__(self, sequences: list[Sequence], draws: Draws) -> list[Sequence]:
        for sequence in sequences:
            sequence.streams["text"]["rank"] = np.arange(sequence.length("text"))
        return sequences
