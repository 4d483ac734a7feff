"""Base of the transforms that add knowledge of the entities linked to a text."""

from __future__ import annotations

from typing import Any

import numpy as np

from workbench.sequences.protocols import CountingTransform
from workbench.sequences.sequence import Fields


class LinkedTransform(CountingTransform):
    """Base of such a transform, which reads linked entities and counts."""

    controls: tuple[str, ...] = ("no-kg",)
    reads_spans = True


def mention_at(text: Fields, rows: np.ndarray) -> dict[str, Any]:
    """The `mention` at rows of a text: [start, end] in characters, `of` the `second` text where it is in that one."""
    rows = rows[text["char_start"][rows] >= 0]
    place = [int(text["char_start"][rows[0]]), int(text["char_end"][rows[-1]])] if len(rows) else [-1, -1]
    return {"mention": place} | ({"of": "second"} if len(rows) and text["token_type_ids"][rows[0]] else {})


def visibility_at(text: Fields, rows: np.ndarray) -> Fields:
    """The visibility integers of rows of a text, for rows of another stream that are seen as these."""
    return {name: text[name][rows] for name in ("doc", "rank", "until") if name in text}
