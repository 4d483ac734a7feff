"""Positions of an image's rows behind the text (VL-BERT, arXiv:1908.08530, section 3.2: they have no order)."""

from __future__ import annotations

import numpy as np

from workbench.keyed import Draws
from workbench.options.bounds import Word
from workbench.sequences.protocols import Step
from workbench.sequences.sequence import Sequence


class VisualPositions(Step):
    """All rows of the image have the position that follows the text's, but for the last, which ends the sequence and
    has the next one. Sequences without an image pass as they are.

    Args:
        stream, image: of the text, and of the image's rows.
    """

    def __init__(self, stream: Word = "text", image: Word = "image") -> None:
        self.stream, self.image = stream, image

    def __call__(self, sequences: list[Sequence], draws: Draws) -> list[Sequence]:
        for sequence in sequences:
            rows = sequence.length(self.image)
            if rows:
                positions = np.full(rows, sequence.length(self.stream), np.int64)
                positions[-1] += 1
                sequence.streams[self.image]["position_ids"] = positions
        return sequences
