"""Triple classification (KG-BERT, arXiv 1909.03193, equations 1 and 2).

With p the pooled output of a triple as text, the probability that it holds is softmax(W p + b)[true]. A false triple is
a true one whose head or tail, each as likely, is another entity; what the graph states is no false triple.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kg.graph.negatives import right_entities, stated_entities, wrong_entities
from kg.graph.store import GraphStore
from kg.vectors.scores import ByTriple, TripleScores
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Count, Dropout, Location, Word
from workbench.models.network import Network
from workbench.objectives.classify import Classify, ClassifyHead
from workbench.pretraining.forward import HeadInputs
from workbench.pretraining.objective import Head
from workbench.pretraining.task import Task
from workbench.sequences.batch import collate
from workbench.sequences.sequence import Sample

LABEL, FALSE, TRUE = "triple", "false", "true"


class TripleClassification(Classify):
    """Triple classification (KG-BERT, arXiv:1909.03193, equations 1 and 2). The triples of the corpus are true, and
    `negatives` false triples are made from each.

    Args:
        graph: a triples corpus, or a graph store: the entities of its triples take the place of others, its triples are
            not false.
        negatives: false triples for each true one, which differ in its head all, or all in its tail (the released code:
        1 for
            triple classification, 5 for link prediction).
        stream, dropout: as for `classify`.
    """

    reads = ("triples",)

    def __init__(
        self, graph: Location | GraphStore, negatives: Count = 1, stream: Word = "text", dropout: Dropout = 0.1
    ) -> None:
        super().__init__([FALSE, TRUE], LABEL, stream, dropout)
        self.graph = graph if isinstance(graph, GraphStore) else GraphStore.open(graph)
        self.others = stated_entities(self.graph)
        self.negatives = negatives

    def arrange(self, samples: list[Sample], draws: Draws) -> list[Sample]:
        """Each triple as a sample of its own, its false ones behind it. One that is true with every entity has none."""
        return [
            {**each, "draw": (*sample.get("draw", ()), number)}
            for sample in samples
            for number, each in enumerate(self._all(sample, draws.of(tuple(sample.get("draw", ())))))
        ]

    def _all(self, sample: Sample, rng: np.random.Generator) -> Iterator[Sample]:
        for triple in sample["triples"]:
            yield _labelled(sample, str(sample["id"]), triple, TRUE)
            yield from self._false(sample, triple, rng)

    def _false(self, sample: Sample, triple: dict[str, Any], rng: np.random.Generator) -> list[Sample]:
        head, relation, tail = str(sample["id"]), str(triple["relation"]), str(triple["tail"])
        if rng.random() < 0.5:
            right = right_entities(self.graph, tail, relation, "in", head)
            return [_labelled(sample, entity, triple, FALSE) for entity in self._wrong(right, rng)]
        right = right_entities(self.graph, head, relation, "out", tail)
        return [_labelled(sample, head, {**triple, "tail": entity}, FALSE) for entity in self._wrong(right, rng)]

    def _wrong(self, right: np.ndarray, rng: np.random.Generator) -> list[str]:
        """Entities that are none of these, drawn one by one."""
        rows = wrong_entities(self.others, right, self.negatives, rng)
        return [self.graph.ids[row] for row in rows]

    def triple_scores(
        self, task: Task, network: Network, head: Head, graph: GraphStore, batch_size: int
    ) -> TripleScores:
        """Scores of a graph's triples, for evaluation: the logarithm of the odds that one is true."""
        assert isinstance(head, ClassifyHead)
        return TripleTextScores(task, network, head, graph, batch_size)


class TripleTextScores(ByTriple):
    """Scores by a network that reads a triple as text, so many at a time."""

    def __init__(self, task: Task, network: Network, head: ClassifyHead, graph: GraphStore, batch_size: int) -> None:
        super().__init__(graph.num_entities)
        self.task, self.network, self.head, self.graph, self.batch_size = task, network, head, graph, batch_size

    @torch.inference_mode()
    def triples(self, triples: Tensor) -> Tensor:
        """[triples, 3] -> [triples]."""
        parts = [self._odds(part) for part in triples.split(self.batch_size)]
        return torch.cat(parts) if parts else torch.zeros(0)

    def _odds(self, triples: Tensor) -> Tensor:
        ids, relations = self.graph.ids, self.graph.relation_ids
        samples = [
            {
                "key": str(number),
                "draw": (number,),
                "id": ids[h],
                "triples": [{"relation": relations[r], "tail": ids[t]}],
            }
            for number, (h, r, t) in enumerate(triples.tolist())
        ]
        batch = collate(self.task.sequences(samples)).to(next(self.network.parameters()).device)
        logits = self.head.logits(HeadInputs.of(self.network, batch, {}))
        return (logits[:, 1] - logits[:, 0]).float().cpu()


def _labelled(sample: Sample, head: str, triple: dict[str, Any], label: str) -> Sample:
    return {**sample, "id": head, "triples": [triple], "labels": {**sample.get("labels", {}), LABEL: label}}
