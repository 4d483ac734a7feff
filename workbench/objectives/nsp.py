"""Next sentence prediction (BERT, arXiv:1810.04805): does the second segment follow the first?

0 = it follows, 1 = it is another sample's (as in BERT's published code and Hugging Face); with a share of `previous`
ones also 2 = it comes before the first: the sentence structural objective of StructBERT (arXiv:1908.04577, section
2.3).
"""

from __future__ import annotations

from typing import Literal

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Share, Word
from workbench.objectives._pair import PairObjective, donors
from workbench.sequences.segments import (
    arrangeable,
    in_two,
    labelled,
    segments_of,
    sentence_pairs,
    swapped,
    with_second,
)
from workbench.sequences.sequence import Sample


class Nsp(PairObjective):
    """Next sentence prediction (BERT, arXiv:1810.04805). Half of the samples get the second segment of another record
    of the micro-batch; others may be swapped.

    Those samples exchange their seconds, so that all of the text is still read; one that is left over gets a copy of
    another sample's. Some samples have no label: one that cannot be split, one that is in another order already (sop),
    one that a mixture of visibilities does not read in both directions (UniLM), and one for which the micro-batch has
    no other record.

    Args:
        random: share of the samples with another second.
        previous: share of the samples whose segments are swapped; above 0 there are three classes.
        stream: the stream whose pooled output is read.
        pairs: `segments`: a sample is cut in two, of several sentences each (BERT); `sentences`: each two neighbouring
            sentences of it are a pair, so that it becomes several short ones (RoBERTa, arXiv:1907.11692, section 4.2).
    """

    name = "nsp"
    splits = True

    def __init__(
        self,
        random: Share = 0.5,
        previous: Share = 0.0,
        stream: Word = "text",
        pairs: Literal["segments", "sentences"] = "segments",
    ) -> None:
        super().__init__(stream)
        if random + previous > 1 + 1e-9:
            raise WorkbenchError(
                f"random = {random}, previous = {previous}; allowed: shares of at most 1 together (in the rest the "
                "second segment follows)"
            )
        self.random, self.previous, self.pairs = random, previous, pairs
        self.classes = 3 if previous else 2

    def arrange(self, samples: list[Sample], draws: Draws) -> list[Sample]:
        if self.pairs == "sentences":
            samples = [pair for s in samples for pair in (sentence_pairs(s) if arrangeable(s) else [s])]
        numbers = draws.numbers([tuple(sample.get("draw", ())) for sample in samples])
        cuts, drawn = numbers.random().tolist(), numbers.random().tolist()
        pairs = [in_two(s, cut) if arrangeable(s) else s for s, cut in zip(samples, cuts, strict=True)]
        usable = [i for i, pair in enumerate(pairs) if pair.get("follows") and arrangeable(pair)]
        others = donors(pairs, [i for i in usable if drawn[i] < self.random], usable, draws.batch)
        arranged = []
        for i, pair in enumerate(pairs):
            donor = others.get(i)
            if donor is not None:
                arranged.append(labelled(with_second(pair, segments_of(pairs[donor])[1]), self.name, 1))
            elif i not in usable or i in others:
                arranged.append(labelled(pair, self.name, -100))
            elif drawn[i] < self.random + self.previous:
                arranged.append(labelled(swapped(pair), self.name, 2))
            else:
                arranged.append(labelled(pair, self.name, 0))
        return arranged
