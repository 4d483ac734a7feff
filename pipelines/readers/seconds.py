"""Reads intervals of time in seconds."""

from __future__ import annotations

from typing import Any

from pipelines.readers.reader import MalformedError
from workbench.corpora.schema.field_values import times


def stretch(found: Any, where: str) -> list[float]:
    """[from, to] in seconds, as numbers of one type.

    Raises:
        MalformedError: it is none.
    """
    if times([found]):
        raise MalformedError("a time must be [from, to] in seconds from 0", where, str(found)[:60])
    return [float(second) for second in found]
