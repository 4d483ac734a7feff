"""What noises that move rows share."""

from __future__ import annotations

import numpy as np

from workbench.sequences.sequence import Fields


def stretches_of(fields: Fields) -> list[tuple[int, int]]:
    """The rows [start, end) between special ones: a text, or the segments of a pair."""
    edges = np.flatnonzero(np.diff(np.concatenate([[True], fields["special"], [True]])))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))
