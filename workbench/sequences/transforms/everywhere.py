"""Rows that are exempt from a window: Longformer's global attention (Beltagy et al., arXiv:2004.05150, section 3.1),
BigBird's global tokens among those of the text (Zaheer et al., arXiv:2007.14062, section 2, BigBird-ITC).

Longformer has projections of their own for such rows, as the layer `local_global`; in others they use the layer's.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from workbench.core.keyed import Draws
from workbench.core.options.bounds import Count, Word
from workbench.sequences.protocols import Transform
from workbench.sequences.sequence import Fields, Sequence


class EverywhereTransform(Transform):
    """Global attention in layers with a `window` (Longformer, arXiv:2004.05150, section 3.1; BigBird-ITC,
    arXiv:2007.14062, section 2). The marked rows attend to all rows, and all rows attend to them, as far as the
    visibility of the builder allows.

    Args:
        rows: `first`: the first row of each text ([CLS]: classification); `special`: all that the builder added
            ([CLS], [SEP], ...); `first_segment`: those of the first of several segments (the question of a question
            and its passage), and of a text with one segment the first row.
        count: of `first`, the number of rows at the start of each text (BigBird: 128).
        stream: the stream of the tokens.
    """

    def __init__(
        self, rows: Literal["first", "special", "first_segment"] = "first", stream: Word = "text", count: Count = 1
    ) -> None:
        self.rows, self.stream, self.count = rows, stream, count

    def __call__(self, sequences: list[Sequence], draws: Draws) -> list[Sequence]:
        for sequence in sequences:
            fields, length = sequence.fields(self.stream), sequence.length(self.stream)
            if self.rows == "special":
                marked = np.asarray(fields["special"], np.bool_)
            else:
                marked = _first(fields, length, self.rows == "first_segment", self.count)
            fields["everywhere"] = marked.astype(np.int64)
        return sequences


def _first(fields: Fields, length: int, segment: bool, count: int) -> np.ndarray:
    """The first rows of each document, or the rows of its first segment [length]."""
    doc = fields.get("doc", np.zeros(length, np.int64))
    starts = np.flatnonzero(np.diff(doc, prepend=doc[:1] - 1))
    marked = np.zeros(length, np.bool_)
    for start, end in zip(starts, np.append(starts, length)[1:], strict=True):
        marked[start : min(end, start + count)] = True
        types = fields["token_type_ids"][start:end] if segment else doc[start : start + 1]
        if types.max() > types.min():
            marked[start:end] = types == types[0]
    return marked
