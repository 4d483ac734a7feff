"""Structure-aware objectives of ERNIE 2.0 (Sun et al., AAAI 2020, arXiv:1907.12412, section 4.2.2): a text is arranged
anew, and the pooled output says how.

    order      a text of 1 .. 3 segments, which are permuted: one class for each permutation of each number, 9 together
    distance   two segments: 0 they are neighbors in a text, 1 they are of one text, 2 they are of two texts
"""

from __future__ import annotations

from itertools import permutations
from typing import Literal

from workbench.core.keyed import Draws
from workbench.core.options.bounds import Word
from workbench.objectives._pair import PairObjective, donors
from workbench.sequences.segments import arrangeable, in_parts, joined, labelled, splits_at_sentence, with_second
from workbench.sequences.sequence import Sample

ORDERS = [order for parts in (1, 2, 3) for order in permutations(range(parts))]
"""The classes of `order`: the places in the text of the segments that are read."""
NEIGHBORS, TOGETHER, APART = range(3)


class Arranged(PairObjective):
    """Sentence reordering and sentence distance of ERNIE 2.0 (Sun et al., arXiv:1907.12412, section 4.2.2). A text is
    arranged anew, and its class says how.

    A sample that has too few sentences, that is a pair already, that a mixture of visibilities does not read in both
    directions, or for which the micro-batch has no other record, has no label.

    Args:
        by: `order`: the segments of a text are permuted. `distance`: a third of the samples has two neighboring
            segments, a third two of one text that are no neighbors, a third those of two texts.
        stream: the stream whose pooled output is read.
    """

    splits = True

    def __init__(self, by: Literal["order", "distance"], stream: Word = "text") -> None:
        super().__init__(stream)
        self.by = by
        self.classes = len(ORDERS) if by == "order" else 3

    def arrange(self, samples: list[Sample], draws: Draws) -> list[Sample]:
        numbers = draws.numbers([tuple(sample.get("draw", ())) for sample in samples])
        drawn = list(zip(*(numbers.random().tolist() for _ in range(4)), strict=True))
        if self.by == "order":
            return [self._ordered(*each) for each in zip(samples, drawn, strict=True)]
        return self._distant(samples, drawn, draws)

    def _ordered(self, sample: Sample, drawn: tuple[float, ...]) -> Sample:
        """The sample with its segments in another order."""
        if "second" in sample or not arrangeable(sample) or not splits_at_sentence(sample.get("text", "")):
            return labelled(sample, self.name, -100)
        parts = in_parts(sample, list(drawn[1 : 1 + int(3 * drawn[0])]))
        orders = [number for number, order in enumerate(ORDERS) if len(order) == len(parts)]
        label = orders[int(drawn[3] * len(orders))]
        return labelled({**sample, **joined([parts[place] for place in ORDERS[label]])}, self.name, label)

    def _distant(self, samples: list[Sample], drawn: list[tuple[float, ...]], draws: Draws) -> list[Sample]:
        """The samples as pairs of segments."""
        parts = [
            in_parts(s, list(d[1:3])) if arrangeable(s) and s.get("text") else []
            for s, d in zip(samples, drawn, strict=True)
        ]
        usable = [i for i, own in enumerate(parts) if len(own) == 3]
        kinds = [int(3 * each[0]) for each in drawn]
        others = donors(samples, [i for i in usable if kinds[i] == APART], usable, draws.batch)
        arranged = []
        for i, (sample, own) in enumerate(zip(samples, parts, strict=True)):
            donor = others.get(i)
            if i not in usable or (kinds[i] == APART and donor is None):
                arranged.append(labelled(sample, self.name, -100))
                continue
            second = {NEIGHBORS: own[1], TOGETHER: own[2], APART: parts[i if donor is None else donor][2]}[kinds[i]]
            arranged.append(labelled(with_second({**sample, **own[0]}, second), self.name, kinds[i]))
        return arranged
