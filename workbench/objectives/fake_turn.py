"""Is this dialogue real? (ERNIE 1.0's dialogue language model, arXiv:1904.09223, section 4.2.)

In a fake dialogue, one turn, a query or a response, comes from another dialogue. 0 = real, 1 = fake.
"""

from __future__ import annotations

from workbench.core.keyed import Draws
from workbench.core.options.bounds import Share, Word
from workbench.objectives._pair import PairObjective, donors
from workbench.sequences.segments import labelled
from workbench.sequences.sequence import Sample


class FakeTurn(PairObjective):
    """Real or fake dialogues (ERNIE, arXiv:1904.09223, section 4.2). In half of the dialogues one turn is replaced with
    a turn of another record of the micro-batch.

    The speakers stay unchanged. A dialogue of a single turn, or for which the micro-batch has no other record, has no
    label.

    Args:
        random: share of the dialogues with another turn.
        stream: the stream whose pooled output is read.
    """

    reads = ("turns",)

    def __init__(self, random: Share = 0.5, stream: Word = "text") -> None:
        super().__init__(stream)
        self.random = random

    def arrange(self, samples: list[Sample], draws: Draws) -> list[Sample]:
        generators = [draws.of(tuple(sample.get("draw", ()))) for sample in samples]
        usable = [i for i, sample in enumerate(samples) if len(sample.get("turns", ())) > 1]
        chosen = [i for i in usable if generators[i].random() < self.random]
        others = donors(samples, chosen, usable, draws.batch)
        arranged = []
        for i, (sample, rng) in enumerate(zip(samples, generators, strict=True)):
            donor = others.get(i)
            if donor is not None:
                turns, donated = list(sample["turns"]), samples[donor]["turns"]
                turns[int(rng.integers(len(turns)))] = donated[int(rng.integers(len(donated)))]
                arranged.append(labelled({**sample, "turns": turns}, self.name, 1))
            else:
                arranged.append(labelled(sample, self.name, 0 if i in usable and i not in others else -100))
        return arranged
