"""A class token after a causal text (CoCa, arXiv:2205.01917, section 3.2)."""

from __future__ import annotations

import numpy as np

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Count, Word
from workbench.sequences.protocols import Transform
from workbench.sequences.sequence import Fields, Rows, Sequence
from workbench.sequences.transforms.queries import LAST
from workbench.text.tokenizer import Tokenizer


class TextClassTransform(Transform):
    """Class token of a causal text (CoCa, arXiv:2205.01917, section 3.2). It adds a stream with one row, which reads
    the whole text and is read by none of its rows. The row is not a token of the vocabulary and is not predicted, and
    generation continues the text before it. A layer `joint` treats both as one sequence; the embedding of the row is
    `queries`.

    Args:
        stream: the name of the new stream.
        of: the text.
        length: open_clip's CoCa pads texts to this length, and masks the padding one place too late: the class token of
        a
            shorter text sees the first row of the padding, and not itself. With a length that row exists here too, as
            the stream `padding` (which shares the text's tables: `tie`). null: it sees the text and itself, as in the
            paper.
        padding: the name of the stream of that row.

    Raises:
        WorkbenchError: a sequence has a stream of that name already, or the text is longer than `length`.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        stream: Word = "class",
        of: Word = "text",
        length: Count | None = None,
        padding: Word = "padding",
    ) -> None:
        self.stream, self.of, self.length, self.padding = stream, of, length, padding
        self.padding_id = tokenizer.id("pad") if length and tokenizer.has("pad") else 0

    def __call__(self, sequences: list[Sequence], draws: Draws) -> list[Sequence]:
        for sequence in sequences:
            rows = sequence.length(self.of)
            if rows:
                self._add(sequence, rows)
        return sequences

    def _add(self, sequence: Sequence, rows: int) -> None:
        taken = [name for name in (self.stream, self.padding) if name in sequence.streams]
        if taken:
            raise WorkbenchError(f"sequence {sequence.key!r} has a stream {taken[0]!r} already; choose another name")
        if self.length is not None and rows > self.length:
            raise WorkbenchError(
                f"sequence {sequence.key!r} has a text of {rows} tokens, and length = {self.length}; set max_length of "
                "the builder to that at most"
            )
        own = self._row(0, LAST)
        if self.length is not None and rows < self.length:
            own["until"] = own["rank"].copy()  # it does not see itself
            row = self._row(self.padding_id, LAST - 1)
            sequence.streams[self.padding] = {**row, "position_ids": np.array([rows])}
        sequence.streams[self.stream] = own

    def _row(self, number: int, rank: int) -> Fields:
        return {
            "input_ids": np.array([number]),
            "special": np.ones(1, np.bool_),
            "rank": np.array([rank]),
            "of": Rows(self.of, np.zeros(1, np.int64), bound=True),
        }
