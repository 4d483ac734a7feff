"""Texts of one length, whose padding is read (SigLIP, Zhai et al., arXiv:2303.15343)."""

from __future__ import annotations

import numpy as np

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Count, Word
from workbench.sequences.protocols import Transform
from workbench.sequences.rows import insert
from workbench.sequences.sequence import Sequence
from workbench.text.tokenizer import Tokenizer

COUNTED = ("position_ids", "rank")


class FillTransform(Transform):
    """Texts of one length, whose padding is read like any other token (SigLIP, arXiv:2303.15343; its text vector is the
    state of the last row). The tokenizer's padding token, or else its end token, fills each text. No objective corrupts
    these rows.

    Args:
        length: rows of each text afterwards.
        stream: the text.

    Raises:
        WorkbenchError: a text is longer, or the tokenizer has neither token.
    """

    def __init__(self, tokenizer: Tokenizer, length: Count, stream: Word = "text") -> None:
        self.length, self.stream = length, stream
        self.padding = tokenizer.id("pad" if tokenizer.has("pad") else "eos")

    def __call__(self, sequences: list[Sequence], draws: Draws) -> list[Sequence]:
        return [self._filled(sequence) for sequence in sequences]

    def _filled(self, sequence: Sequence) -> Sequence:
        rows = sequence.length(self.stream)
        if rows > self.length:
            raise WorkbenchError(
                f"sequence {sequence.key!r} has a text of {rows} tokens, and length = {self.length}; set max_length of "
                "the builder to that at most"
            )
        if rows in (0, self.length):
            return sequence
        filled, new = sequence.copy(), self.length - rows
        fields = filled.fields(self.stream)
        counted = {name: fields[name][-1] + 1 + np.arange(new) for name in COUNTED if name in fields}
        last = np.full(new, rows - 1)
        insert(filled, np.full(new, rows), self.stream, like=last, input_ids=self.padding, **counted)
        return filled
