"""What the parts that make and choose from sequences must return."""

from __future__ import annotations

from typing import Any

import numpy as np

from workbench.parts.calls import Returns, all_are, described
from workbench.sequences.sequence import Sequence


def _are_row_groups(found: Any) -> bool:
    return isinstance(found, list) and all(
        isinstance(rows, np.ndarray) and rows.ndim == 1 and rows.dtype.kind in "iu" for rows in found
    )


def _are_groups(found: Any, sequence: Sequence, stream: str, *_: Any) -> bool:
    return _are_row_groups(found) and not _bad_rows(found, sequence, stream)


def _bad_rows(groups: list[np.ndarray], sequence: Sequence, stream: str) -> str:
    """What is wrong with the rows of the stream that a policy chose, in words."""
    if not groups:
        return ""
    tokens, rows = sequence.streams[stream], np.concatenate(groups).astype(np.int64)
    size = len(tokens["special"])
    outside = rows[(rows < 0) | (rows >= size)]
    if len(outside):
        return f"row {outside[0]} of the stream {stream!r} with {size}"
    often = np.bincount(rows, minlength=size)
    for words, bad in ("twice", often > 1), ("special", often * tokens["special"]), ("taken", often * tokens["taken"]):
        if bad.any():
            return f"row {bad.argmax()}, {'which is ' * (words != 'twice')}{words}"
    return ""


def _told_groups(found: Any, sequence: Sequence, stream: str, *_: Any) -> str:
    return _bad_rows(found, sequence, stream) if _are_row_groups(found) else described(found)


SAMPLES = Returns("the list of samples", all_are(dict))
SEQUENCES = Returns("a list of workbench.sequences.sequence.Sequence", all_are(Sequence))
GROUPS = Returns(
    "a list of arrays of rows, whole numbers [rows]: rows of the stream that are neither special nor taken, each once",
    _are_groups,
    _told_groups,
)
FIELDS = Returns("the fields of the image stream, a dict of arrays", lambda f, *_: isinstance(f, dict))
