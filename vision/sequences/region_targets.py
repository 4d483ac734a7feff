"""Stored outputs of a detector for its regions, as targets of objectives; and the rows that are not regions."""

from __future__ import annotations

import numpy as np

from workbench.core.errors import WorkbenchError
from workbench.sequences.missing_fields import how_to_prepare
from workbench.sequences.sequence import Fields, Sequence

TARGETS = ("classes", "confidence", "attributes", "attribute_confidence", "scores")
"""The most likely class [n] and its confidence, the same for an attribute, the distribution [n, classes]. They stay in
the loader's workers: an objective copies those of the rows that it hides to its targets."""


def stored(sequence: Sequence, stream: str, name: str, reader: str) -> np.ndarray:
    """One of the targets of a sequence's image rows [rows, ...].

    Raises:
        WorkbenchError: the corpus has none; `reader` is the objective that needs it.
    """
    fields = sequence.streams[stream]
    if name not in fields:
        raise WorkbenchError(
            f"objective {reader!r}: the regions of {sequence.key!r} have no {name!r} (the image stream has "
            f"{', '.join(sorted(fields))}). Prepare it: {how_to_prepare(f'regions.{name}')}"
        )
    found: np.ndarray = fields[name]
    return found


def special_rows(fields: Fields) -> np.ndarray:
    """Which rows are not regions of the image (a class token, the image as a whole): [rows], bool."""
    return fields.get("special", np.zeros(len(fields["boxes"]), np.bool_))
