"""Texts of one length, whose padding is read (SigLIP, Zhai et al., arXiv:2303.15343)."""

from __future__ import annotations

import numpy as np

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Count, Word
from workbench.sequences.protocols import Transform
from workbench.sequences.rows import insert, recount
from workbench.sequences.sequence import Sequence
from workbench.text.tokenizer import Tokenizer


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
        for sequence in sequences:
            rows = sequence.length(self.stream)
            if rows > self.length:
                raise WorkbenchError(
                    f"sequence {sequence.key!r} has a text of {rows} tokens, and length = {self.length}; set "
                    "max_length of the builder to that at most"
                )
            if 0 < rows < self.length:
                self._fill(sequence, rows)
        return sequences

    def _fill(self, sequence: Sequence, rows: int) -> None:
        new = self.length - rows
        ends = {"word_ids": -1, "char_start": -1, "char_end": -1, "special": True, "taken": True}
        given = {name: value for name, value in ends.items() if name in sequence.fields(self.stream)}
        last = np.full(new, rows - 1)
        insert(sequence, np.full(new, rows), self.stream, like=last, input_ids=self.padding, **given)
        recount(sequence, self.stream)
