"""What the transforms share that bring in what is known of the entities linked to a text."""

from __future__ import annotations

from collections import Counter

from workbench.sequences.protocols import Transform


class LinkedTransform(Transform):
    """Base of such a transform, which keeps account: `used` of what it brought in, `dropped` of what it left out."""

    controls: tuple[str, ...] = ("no-kg",)
    reads_spans = True

    def __init__(self) -> None:
        self.used: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()

    def take_used(self) -> dict[str, int]:
        """What was brought in since the last call, by what it is."""
        used, self.used = dict(+self.used), Counter()
        return used

    def take_dropped(self) -> dict[str, int]:
        """What was left out since the last call, by reason."""
        dropped, self.dropped = dict(+self.dropped), Counter()
        return dropped
