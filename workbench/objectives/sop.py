"""Sentence order prediction (ALBERT, arXiv:1909.11942): are two consecutive segments in their order?

0 = in order, 1 = swapped (as in Hugging Face).
"""

from __future__ import annotations

from workbench.core.keyed import Draws
from workbench.core.options.bounds import Share, Word
from workbench.objectives._pair import PairObjective
from workbench.sequences.segments import arrangeable, in_two, labelled, swapped
from workbench.sequences.sequence import Sample


class Sop(PairObjective):
    """Sentence order prediction (ALBERT, arXiv:1909.11942): the two segments of half of the samples are swapped.

    A sample that cannot be split, whose second segment is not its own (nsp), or that a mixture of visibilities does not
    read in both directions, has no label.

    Args:
        swap: share of the samples that are swapped.
        stream: the stream whose pooled output is read.
    """

    name = "sop"
    splits = True

    def __init__(self, swap: Share = 0.5, stream: Word = "text") -> None:
        super().__init__(stream)
        self.swap = swap

    def arrange(self, samples: list[Sample], draws: Draws) -> list[Sample]:
        numbers = draws.numbers([tuple(sample.get("draw", ())) for sample in samples])
        return list(map(self._arrange, samples, numbers.random().tolist(), numbers.random().tolist()))

    def _arrange(self, sample: Sample, cut: float, swap: float) -> Sample:
        pair = in_two(sample, cut) if arrangeable(sample) else sample
        if not pair.get("follows") or not arrangeable(pair):
            return labelled(pair, self.name, -100)
        if swap < self.swap:
            return labelled(swapped(pair), self.name, 1)
        return labelled(pair, self.name, 0)
