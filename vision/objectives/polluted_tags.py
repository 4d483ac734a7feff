"""Are the object tags those of the image? (Oscar, Li et al., arXiv:2004.06165)

With probability `rate` the tags of a sequence are exchanged for those of another one of the micro-batch, which differ.
The label is 1 = its own tags, 0 = polluted. It comes before objectives that hide words of the tags.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vision.objectives.itm import ItmHead
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Share, Word
from workbench.pretraining.objective import BatchTargets, Head, Objective
from workbench.sequences.sequence import Sequence

if TYPE_CHECKING:
    from workbench.models.network import Network


class PollutedTags(Objective):
    """Contrastive loss of object tags (Oscar, arXiv:2004.06165, section 3, equation 3): whether the tags of an image
    are its own, from the pooled output of the text. Sequences without tags do not count.

    Args:
        rate: probability of an exchange.
        tags: the stream of the tags, of the transform `vision.object_tags`.
        stream: the stream whose pooled output is read.

    Raises:
        WorkbenchError: the network has no pooler for the stream, or an earlier objective has hidden words of the tags.
    """

    def __init__(self, rate: Share = 0.5, tags: Word = "tags", stream: Word = "text") -> None:
        self.rate, self.tags, self.stream = rate, tags, stream

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        lenders = [sequence.streams[self.tags] for sequence in sequences if sequence.length(self.tags)]
        if any(fields["taken"].any() for fields in lenders):
            raise WorkbenchError(
                f"objective {self.name!r}: words of the stream {self.tags!r} are hidden already; list it before the "
                "objective that hides them"
            )
        said = [fields["input_ids"].tolist() for fields in lenders]
        for sequence in sequences:
            label = -100
            if sequence.length(self.tags):
                own, rng = sequence.streams[self.tags]["input_ids"].tolist(), draws.of(sequence.draw)
                others = [number for number, ids in enumerate(said) if ids != own] if rng.random() < self.rate else []
                if others:
                    lent = lenders[others[int(rng.integers(len(others)))]]
                    sequence.streams[self.tags] = {name: values.copy() for name, values in lent.items()}
                label = int(not others)
            sequence.targets[self.name] = {"labels": np.array([label], np.int64)}
        return {}

    def head(self, network: Network) -> Head:
        return ItmHead([self.stream], {self.stream: network.pooled_size(self.stream)})
