"""Base of the transforms that add knowledge of the entities linked to a text."""

from __future__ import annotations

import numpy as np

from workbench.sequences.protocols import CountingTransform
from workbench.sequences.sequence import Fields


class LinkedTransform(CountingTransform):
    """Base of such a transform, which reads linked entities and counts."""

    controls: tuple[str, ...] = ("no-kg",)
    reads_spans = True


def visibility_at(text: Fields, rows: np.ndarray) -> Fields:
    """The visibility integers of rows of a text, for rows of another stream that are seen as these."""
    return {name: text[name][rows] for name in ("doc", "rank", "until") if name in text}
