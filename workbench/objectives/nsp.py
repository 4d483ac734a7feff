"""Next sentence prediction (BERT, arXiv:1810.04805): does the second segment follow the first?

0 = it follows, 1 = it is another sample's (as in BERT's release and Hugging Face).
"""

from __future__ import annotations

import numpy as np

from workbench.keyed import Draws
from workbench.objectives._pair import PairObjective
from workbench.options.bounds import Share, Word
from workbench.sequences.segments import in_two, labelled, segments_of, with_second
from workbench.sequences.sequence import Sample


class Nsp(PairObjective):
    """Gives half of the samples the second segment of another record of the micro-batch.

    Those samples exchange their seconds, so that all of the text is still read; one that is left over gets a copy of
    another sample's. A sample that cannot be split, that is in another order already (sop), or for which the
    micro-batch has no other record, has no label.

    Args:
        random: share of the samples with another second.
        stream: whose pooled output is read.
    """

    name = "nsp"

    def __init__(self, random: Share = 0.5, stream: Word = "text") -> None:
        super().__init__(stream)
        self.random = random

    def arrange(self, samples: list[Sample], draws: Draws) -> list[Sample]:
        generators = [draws.of(tuple(sample.get("draw", ()))) for sample in samples]
        pairs = [in_two(sample, rng) for sample, rng in zip(samples, generators, strict=True)]
        usable = [i for i, pair in enumerate(pairs) if pair.get("follows")]
        chosen = [i for i in usable if generators[i].random() < self.random]
        donors = _donors(pairs, chosen, usable, draws.batch)
        arranged = []
        for i, pair in enumerate(pairs):
            donor = donors.get(i)
            if donor is not None:
                arranged.append(labelled(with_second(pair, segments_of(pairs[donor])[1]), self.name, 1))
            else:
                arranged.append(labelled(pair, self.name, 0 if i in usable and i not in donors else -100))
        return arranged


def _donors(
    pairs: list[Sample], chosen: list[int], usable: list[int], rng: np.random.Generator
) -> dict[int, int | None]:
    """For each chosen sample the one whose second it gets: the next in a random circle, never of the same record."""
    circle = [chosen[i] for i in rng.permutation(len(chosen)).tolist()]

    def differ(a: int, b: int) -> bool:
        return (pairs[a].get("corpus"), pairs[a].get("key")) != (pairs[b].get("corpus"), pairs[b].get("key"))

    donors: dict[int, int | None] = {}
    for place, i in enumerate(circle):
        following = circle[(place + 1) % len(circle)]
        if differ(i, following):
            donors[i] = following
            continue
        others = [j for j in usable if differ(i, j)]
        donors[i] = others[int(rng.integers(len(others)))] if others else None
    return donors
