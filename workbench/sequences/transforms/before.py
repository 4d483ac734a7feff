"""Streams that stand before others in one sequence: positions and visibility run on over them."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from annotated_types import MinLen

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.core.options.bounds import CountOrZero, Word
from workbench.sequences.protocols import Transform
from workbench.sequences.sequence import Fields, Sequence
from workbench.sequences.transforms.queries import LAST


class BeforeTransform(Transform):
    """Streams in their order in one sequence of `joint` layers: an image before a text (LLaVA, arXiv:2304.08485,
    section 4.1), a prompt before a text (Lester et al., arXiv:2104.08691).

    The positions of a stream count on from those before it. A text that is read from left to right sees all rows before
    it, and these do not see the text. In a text that is read in both directions all rows see each other.

    Args:
        streams: in their order; the last one is the text.
        whole: whether the rows before a text that is read from left to right see each other, as a prefix (PaliGemma,
            arXiv:2407.07726); otherwise each sees those up to itself (LLaVA).
        lead: rows of the text that stand before all other streams (a begin token, a system prompt).
    """

    def __init__(self, streams: Annotated[list[Word], MinLen(2)], whole: bool = False, lead: CountOrZero = 0) -> None:
        self.lead = lead
        if len({*streams}) < len(streams):
            raise WorkbenchError(f"streams = {streams}; allowed: each of them once")
        self.streams, self.whole = streams, whole

    def __call__(self, sequences: list[Sequence], draws: Draws) -> list[Sequence]:
        for sequence in sequences:
            present = [name for name in self.streams if sequence.length(name)]
            if not present:
                continue
            text = sequence.streams[present[-1]]
            one_way = "rank" in text
            lead = min(self.lead, sequence.length(present[-1])) if present[-1] == self.streams[-1] else 0
            position, rank = _after(text.get("position_ids"), lead), _after(text.get("rank"), lead)
            for name in present:
                length, last = sequence.length(name), name == self.streams[-1]
                fields, moved = dict(sequence.streams[name]), slice(lead if last else 0, None)
                positions = np.array(fields.get("position_ids", np.arange(length)))
                begin = _after(positions, lead) if last else 0
                positions[moved] += position - begin
                fields["position_ids"] = positions
                position = max(position, int(positions.max()) + 1)
                if one_way:
                    own = _ranks(fields, length, last=last, whole=self.whole)
                    _shift(fields, own, rank, moved, _after(own, lead) if last else 0)
                    rank = max(rank, int(own[own < LAST].max(initial=-1)) + 1)
                sequence.streams[name] = fields
        return sequences


def _after(counted: np.ndarray | None, lead: int) -> int:
    """The position or the rank at which the rows behind the first `lead` begin."""
    if counted is None or not lead:
        return 0
    return int(counted[lead]) if lead < len(counted) else int(counted.max()) + 1


def _ranks(fields: Fields, length: int, *, last: bool, whole: bool) -> np.ndarray:
    """The ranks of a stream by itself [length]; rows that no other stream sees stay so."""
    if last:
        return np.array(fields["rank"])
    counted = np.zeros(length, np.int64) if whole else np.arange(length, dtype=np.int64)
    return np.where(fields.get("rank", counted) >= LAST, LAST, counted)


def _shift(fields: Fields, own: np.ndarray, rank: int, moved: slice, begin: int) -> None:
    """Move the ranks `own` of some rows from `begin` to `rank`, and with them the ranks from which rows are hidden."""
    own[moved] += np.where(own[moved] >= LAST, 0, rank - begin)
    fields["rank"] = own
    if "until" in fields:
        fields["until"] = np.where(fields["until"] > begin, fields["until"] + rank - begin, fields["until"])
