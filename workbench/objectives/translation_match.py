"""Cross-lingual paraphrase classification (Unicoder, Huang et al., EMNLP 2019, arXiv:1909.00964, section 3.2): is the
second sentence a translation of the first?

0 = it is, 1 = it is another record's, in the same language. The paper looks for similar sentences of other records;
here they are drawn.
"""

from __future__ import annotations

from workbench.core.keyed import Draws
from workbench.core.options.bounds import Share, Word
from workbench.objectives._pair import PairObjective, donors
from workbench.sequences.segments import labelled
from workbench.sequences.sequence import Sample


class TranslationMatch(PairObjective):
    """Cross-lingual paraphrase classification (Unicoder, Huang et al., arXiv:1909.00964, section 3.2), for the builder
    `translation_pair`. Some samples get a sentence of another record of the micro-batch.

    A sample has no label where no other record has its language, and where it has one language alone.

    Args:
        random: share of the samples with another sentence.
        stream: the stream whose pooled output is read.
    """

    reads = ("translations",)

    def __init__(self, random: Share = 0.5, stream: Word = "text") -> None:
        super().__init__(stream)
        self.random = random

    def arrange(self, samples: list[Sample], draws: Draws) -> list[Sample]:
        usable = [i for i, sample in enumerate(samples) if len(sample.get("translations", ())) > 1]
        generators = {i: draws.of(tuple(samples[i].get("draw", ()))) for i in usable}
        chosen = [i for i in usable if generators[i].random() < self.random]
        others = donors(samples, chosen, usable, draws.batch)
        arranged = []
        for i, sample in enumerate(samples):
            if i not in others:
                arranged.append(labelled(sample, self.name, 0 if i in generators else -100))
                continue
            own, donor = sample["translations"], others[i]
            there = {} if donor is None else samples[donor]["translations"]
            first, second = generators[i].permutation(list(own)).tolist()[:2]
            if second in there:
                pair = {first: own[first], second: there[second]}
                arranged.append(labelled({**sample, "translations": pair, "translation_spans": {}}, self.name, 1))
            else:
                arranged.append(labelled(sample, self.name, -100))
        return arranged
