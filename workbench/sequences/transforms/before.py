"""Streams that stand before others in one sequence: positions and visibility run on over them."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from annotated_types import MinLen

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Word
from workbench.sequences.protocols import Transform
from workbench.sequences.sequence import Fields, Sequence


class BeforeTransform(Transform):
    """Streams in their order in one sequence of `joint` layers: an image before a text (LLaVA, arXiv:2304.08485,
    section 4.1), a prompt before a text (Lester et al., arXiv:2104.08691).

    The positions of a stream count on from those before it. A text that is read from left to right sees all rows before
    it, and these do not see the text. In a text that is read in both directions all rows see each other.

    Args:
        streams: in their order; the last one is the text.
        whole: whether the rows before a text that is read from left to right see each other, as a prefix (PaliGemma,
            arXiv:2407.07726); otherwise each sees those up to itself (LLaVA).
    """

    def __init__(self, streams: Annotated[list[Word], MinLen(2)], whole: bool = False) -> None:
        if len({*streams}) < len(streams):
            raise WorkbenchError(f"streams = {streams}; allowed: each of them once")
        self.streams, self.whole = streams, whole

    def __call__(self, sequences: list[Sequence], draws: Draws) -> list[Sequence]:
        for sequence in sequences:
            present = [name for name in self.streams if sequence.length(name)]
            one_way = bool(present) and bool(np.any(sequence.streams[present[-1]].get("rank", 0)))
            position = rank = 0
            for name in present:
                length = sequence.length(name)
                fields = dict(sequence.streams[name])
                last = name == self.streams[-1]
                positions = fields.get("position_ids", np.arange(length))
                fields["position_ids"] = positions + position
                if one_way:
                    own = _ranks(fields, length, last=last, whole=self.whole)
                    _shift(fields, own, rank)
                    rank += int(own.max()) + 1
                position += int(positions.max()) + 1
                sequence.streams[name] = fields
        return sequences


def _ranks(fields: Fields, length: int, *, last: bool, whole: bool) -> np.ndarray:
    """The ranks of a stream by itself [length]."""
    if last:
        return np.asarray(fields["rank"])
    return np.zeros(length, np.int64) if whole else np.arange(length, dtype=np.int64)


def _shift(fields: Fields, own: np.ndarray, by: int) -> None:
    """Set the ranks behind those of the streams before, and with them the ranks from which rows are hidden."""
    fields["rank"] = own + by
    if "until" in fields:
        fields["until"] = np.where(fields["until"] > 0, fields["until"] + by, 0)
