"""Which rows of an image stream are parts of the image."""

from __future__ import annotations

import numpy as np

from workbench.sequences.sequence import Fields


def special_rows(fields: Fields) -> np.ndarray:
    """Which rows are no part of the image (a class token, the image as a whole): [rows], bool."""
    return fields.get("special", np.zeros(len(fields["boxes"]), np.bool_))
