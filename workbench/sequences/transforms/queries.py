"""Rows of learned vectors: queries of an image (CoCa, arXiv:2205.01917, section 3.2), prompts (Lester et al.,
arXiv:2104.08691)."""

from __future__ import annotations

import numpy as np

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Count, CountOrZero, Word
from workbench.sequences.protocols import Transform
from workbench.sequences.sequence import Rows, Sequence

LAST = 1 << 30
"""A rank after all of a text: its rows see everything, and no row with another rank sees them."""


class QueriesTransform(Transform):
    """Rows of learned vectors: queries that read an image (CoCa, arXiv:2205.01917, section 3.2), or a prompt before a
    text (Lester et al., arXiv:2104.08691). It adds a stream of `count` rows, numbered from 0, to every sequence with
    rows of the stream `of`. No objective corrupts them.

    Its rows belong to that stream, so that an image taken by itself keeps its queries.

    Args:
        stream: the name of the new stream; its embedding is `queries`.
        count: rows of a sequence, as many as the embedding has queries.
        of: the stream that they belong to.
        unread: number of first queries that no other stream's rows see, as the contrasted one is not read by the
            decoder (open_clip's CoCa, where one pooler serves both).

    Raises:
        WorkbenchError: a sequence has a stream of that name already, or several texts are packed into it.
    """

    def __init__(self, stream: Word, count: Count, of: Word = "image", unread: CountOrZero = 0) -> None:
        if unread > count:
            raise WorkbenchError(f"unread = {unread} of count = {count} queries; at most all of them can be unread")
        self.stream, self.count, self.of, self.unread = stream, count, of, unread

    def __call__(self, sequences: list[Sequence], draws: Draws) -> list[Sequence]:
        for sequence in sequences:
            if self.stream in sequence.streams:
                raise WorkbenchError(
                    f"sequence {sequence.key!r} has a stream {self.stream!r} already; choose another name for the "
                    "queries"
                )
            if "doc" in sequence.streams.get(self.of, {}):
                raise WorkbenchError(
                    f"sequence {sequence.key!r} has several texts, and each needs rows of its own; use a builder that "
                    "makes a sequence for each text"
                )
            if sequence.length(self.of):
                fields = {
                    "input_ids": np.arange(self.count),
                    "special": np.ones(self.count, np.bool_),
                    "of": Rows(self.of, np.zeros(self.count, np.int64), bound=True),
                }
                if self.unread:
                    fields["rank"] = np.where(np.arange(self.count) < self.unread, LAST, 0)
                sequence.streams[self.stream] = fields
        return sequences
