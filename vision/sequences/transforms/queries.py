"""Rows of learned queries that read an image (CoCa, arXiv:2205.01917, section 3.2)."""

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
    """Rows for learned queries (CoCa, arXiv:2205.01917, section 3.2). It adds a stream of `count` rows, numbered from
    0, to every sequence with an image. No objective corrupts them.

    Its rows belong to the image, so that an image taken by itself keeps its queries.

    Args:
        stream: the name of the new stream; its embedding is `vision.queries`.
        count: rows of a sequence, as many as the embedding has queries.
        image: the stream that they belong to.
        unread: number of first queries that no other stream's rows see, as the contrasted one is not read by the
        decoder
            (open_clip's CoCa, where one pooler serves both).

    Raises:
        WorkbenchError: a sequence has a stream of that name already.
    """

    def __init__(self, stream: Word, count: Count, image: Word = "image", unread: CountOrZero = 0) -> None:
        if unread > count:
            raise WorkbenchError(f"unread = {unread} of count = {count} queries; at most all of them can be unread")
        self.stream, self.count, self.image, self.unread = stream, count, image, unread

    def __call__(self, sequences: list[Sequence], draws: Draws) -> list[Sequence]:
        for sequence in sequences:
            if self.stream in sequence.streams:
                raise WorkbenchError(
                    f"sequence {sequence.key!r} has a stream {self.stream!r} already; choose another name for the "
                    "queries"
                )
            if sequence.length(self.image):
                fields = {
                    "input_ids": np.arange(self.count),
                    "special": np.ones(self.count, np.bool_),
                    "of": Rows(self.image, np.zeros(self.count, np.int64), bound=True),
                }
                if self.unread:
                    fields["rank"] = np.where(np.arange(self.count) < self.unread, LAST, 0)
                sequence.streams[self.stream] = fields
        return sequences
