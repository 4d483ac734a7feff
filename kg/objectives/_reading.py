"""What an objective on marked mentions reads of a text: its pooled output, its first row, or the markers themselves.

The markers are read by Soares et al., "Matching the Blanks", ACL 2019 (arXiv 1906.03158, section 3.3), and K-Adapter
(arXiv 2002.01808, section 4): of each mention the state of the marker that stands before it, one behind the other.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from torch import Tensor

from workbench.sequences.sequence import Rows, Sequence
from workbench.tasks.forward import Seen

Reading = Literal["pooled", "first", "markers"]
MARKERS = "markers"


def marker_rows(sequence: Sequence, names: tuple[str, ...], stream: str) -> Rows:
    """The rows of the markers before these stretches [names]; of one that was cut away the sequence's first row.

    A marker is the last row before its stretch that the builder added: what steps inject between them is none.
    """
    added = np.flatnonzero(sequence.streams[stream]["special"])
    starts = {mark.name: mark.start for mark in sequence.marks if mark.stream == stream}
    before = [added[added < starts[name]] if name in starts else added[:0] for name in names]
    return Rows(stream, np.array([rows[-1] if len(rows) else 0 for rows in before], np.int64))


def read(reading: Reading, seen: Seen, stream: str) -> Tensor:
    """[sequences, width of the states, times the number of markers where these are read].

    For the markers the targets have `markers`: those of each sequence, one sequence after the other.
    """
    if reading == "pooled":
        return seen.network.pool(seen.states, seen.batch, stream)
    if reading == "first":
        return seen.network.summary_rows(seen.states, seen.batch, stream)
    return seen.states[stream][seen.targets[MARKERS]].reshape(seen.batch.size, -1)
