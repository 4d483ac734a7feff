"""Relation prediction between two entities (KG-BERT, arXiv 1909.03193, equations 3 and 4).

With p the pooled output of head and tail as text, the relation is the class of softmax(W p + b).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from kg.graph.store import GraphStore
from workbench.core.errors import WorkbenchError, unknown
from workbench.core.options.bounds import Dropout, Location, Word
from workbench.models.network import Network
from workbench.objectives.classify import OTHER_SET, Classify, ClassifyHead
from workbench.pretraining.forward import HeadInputs
from workbench.pretraining.objective import Head
from workbench.pretraining.task import Task
from workbench.sequences.batch import collate
from workbench.sequences.sequence import Sample, Sequence


class RelationPrediction(Classify):
    """Relation prediction (KG-BERT, arXiv:1909.03193, equations 3 and 4): the relation of a triple among those of the
    graph. The builder must leave the relation out.

    Args:
        graph: a triples corpus, or a graph store, whose relations are the classes.
        stream, dropout: as for `classify`.
    """

    reads = ("triples",)

    def __init__(self, graph: Location | GraphStore, stream: Word = "text", dropout: Dropout = 0.1) -> None:
        self.graph = graph if isinstance(graph, GraphStore) else GraphStore.open(graph)
        super().__init__(list(self.graph.relation_ids), "relation", stream, dropout)

    def row(self, sequence: Sequence) -> int:
        name = str(sequence.meta.get("relation"))
        if name not in self.classes:
            where = f"the triple of sequence {sequence.key!r}"
            raise unknown("relation", name, self.classes, where, advice=OTHER_SET)
        return self.classes[name]

    def relation_scores(self, task: Task, network: Network, head: Head) -> Callable[[np.ndarray], np.ndarray]:
        """Pairs of entities [pairs, 2], as rows of the graph -> the logits of its relations [pairs, relations]; the
        task is in evaluation mode.

        Raises:
            WorkbenchError: the builder writes the relation into the sequence, where it is to be asked for.
        """
        assert isinstance(head, ClassifyHead)
        self._check_asked(task)

        @torch.inference_mode()
        def scores(pairs: np.ndarray) -> np.ndarray:
            samples = [self._pair(number, *pair) for number, pair in enumerate(pairs.tolist())]
            batch = collate(task.sequences(samples)).to(next(network.parameters()).device)
            logits: np.ndarray = head.logits(HeadInputs.of(network, batch, {})).float().cpu().numpy()
            return logits

        return scores

    def _pair(self, number: int, head: int, tail: int, relation: int = 0) -> Sample:
        """As a sample; a builder wants some relation, and is never given the right one."""
        fact = {"relation": self.graph.relation_ids[relation], "tail": self.graph.ids[tail]}
        return {"key": str(number), "draw": (number,), "id": self.graph.ids[head], "triples": [fact]}

    def _check_asked(self, task: Task) -> None:
        one, other = (task.sequences([self._pair(0, 0, 0, relation)])[0].streams[self.stream] for relation in (0, 1))
        if not np.array_equal(one["input_ids"], other["input_ids"]):
            raise WorkbenchError(
                f"the builder of the task {task.name!r} writes the relation into the sequence, so that nothing is left "
                f"to predict; pretrain with tasks.{task.name}.sequence.relation=false"
            )
