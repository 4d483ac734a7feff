"""Whether what a record says is heard or seen in a sound or video can be: milliseconds read as seconds cannot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pipelines.readers.reader import Drop

LATE = Drop("times behind the end")
SLACK = 5.0
"""Seconds for which a text that begins before the end may stand behind it: recognised speech is shown for longer than
it is heard."""


def are_late(times: Iterable[Sequence[float]], length: float | None) -> bool:
    """Whether one of the stretches [from, to] of seconds begins behind the end, or ends far behind it.

    Args:
        length: of the sound or video in seconds; None where it is not known.
    """
    return length is not None and any(start > length or end > length + SLACK for start, end in times)
