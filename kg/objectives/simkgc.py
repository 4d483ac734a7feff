"""SimKGC: a question (h, r) and the entity t that answers it are read by two encoders, and find each other.

Wang et al., arXiv:2203.02167, as released. It is the objective `contrast` of questions and entities, with the margin
for the right answer, learned s, and both directions:

    loss = [ CE(s (q_i . t_j - margin [j = i]) over j and h_i; i) + CE(the same over the questions; i) ] / 2

Every triple is asked both ways: (h, r, ?) and (t, inverse r, ?). The question's own entity h_i is a candidate as well
(self negative). Entities that the graph states to answer a question are no negatives of it. The released code adds the
two terms instead of taking their mean. Pre-batch negatives are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from kg.graph.stated_triples import StatedTriples
from kg.graph.store import GraphStore
from kg.objectives._descriptions import encoded, reading
from kg.sequences.description_roles import CAST, CastMember
from kg.vectors.scores import TripleScores
from workbench.core.keyed import Draws
from workbench.core.options.bounds import Location, Name, NotNegative, Seed, Size, Word
from workbench.models.network import Network
from workbench.objectives._vectors import Pool
from workbench.objectives.contrast import Contrast, ContrastHead, Temperature
from workbench.pretraining.forward import NetworkOutput
from workbench.pretraining.objective import GlobalBatchHead, Head
from workbench.pretraining.task import Task
from workbench.sequences.sequence import Sample, Sequence

ROWS = ("head", "relation", "tail")


class Simkgc(StatedTriples, Contrast):
    """Contrast of questions (h, r) and their answers t, by descriptions (SimKGC, arXiv:2203.02167), for sequences of
    the builder `kg.described_triple`.

    Args:
        graph: a triples corpus, or a graph store: the corpus's own, with the descriptions of all its entities.
        question, answer: the streams that read questions and entities; one for a shared encoder.
        pool: the row of a sequence to use: its `first` row, `last` row, or `mean`.
        size: width of the common space; null: the pooled states are compared, without a projection.
        margin: subtracted from the product of a question and its answer.
        temperature: 1 / s at the start.
        negatives: over the `step`, or only the `micro-batch`.
        control: the recipe's; `shuffled-kg` and `permuted-kg` have the tails of `graph.under(control, seed)`.
    """

    reads = ("triples",)

    def __init__(
        self,
        graph: Location | GraphStore,
        question: Word = "text",
        answer: Word = "answer",
        pool: Pool = "mean",
        size: Size | None = None,
        margin: NotNegative = 0.02,
        temperature: Temperature = 0.05,
        negatives: Literal["step", "micro-batch"] = "step",
        control: Name | None = None,
        seed: Seed = 0,
    ) -> None:
        super().__init__(
            question,
            answer,
            pool=pool,
            size=size,
            margin=margin,
            temperature=temperature,
            negatives=negatives,
            self_negatives=True,
        )
        self.open_graph(graph, control, seed)

    def arrange(self, samples: list[Sample], draws: Draws) -> list[Sample]:
        """Each triple as two samples, one for each way of asking, with what is read of it and its rows in the graph."""
        return [
            {**sample, **self._asked(*triple, inverse), "draw": (*sample.get("draw", ()), number, int(inverse))}
            for sample in samples
            for number, triple in enumerate(self.stated_triples(sample))
            for inverse in (False, True)
        ]

    def _asked(self, head: str, relation: str, tail: str, inverse: bool) -> dict[str, object]:
        known, wanted = (tail, head) if inverse else (head, tail)
        question, answer = self.streams.values()
        cast = [
            CastMember("query", known, relation, inverse, question),
            CastMember("passage", wanted, stream=answer),
            CastMember("self", known, stream=answer),
        ]
        rows = (self.graph.row(known), 2 * self.graph.relation_row(relation) + inverse, self.graph.row(wanted))
        return {CAST: cast, "labels": dict(zip(ROWS, rows, strict=True))}

    def numbers(self, query: Sequence, passage: Sequence) -> list[int]:
        """The rows of the question's entity, of its relation (twice the row, and 1 for its inverse), of the answer."""
        return [query.labels[name] for name in ROWS]

    def head(self, network: Network) -> GlobalBatchHead:
        return SimkgcHead(self, self.compared_widths(network))

    def triple_scores(
        self, task: Task, network: Network, head: Head, graph: GraphStore, batch_size: int
    ) -> TripleScores:
        """Scores of a graph's triples, for evaluation: every entity is read once."""
        assert isinstance(head, SimkgcHead)
        return AnswerScores(reading(task, graph), network, head, graph, batch_size)


class SimkgcHead(ContrastHead):
    """The head of `contrast`, which knows the answers that the graph states."""

    known: Tensor

    def __init__(self, options: Simkgc, sizes: Mapping[str, int]) -> None:
        super().__init__(options, sizes)
        stated = options.stated
        self.entities, self.relations = stated.num_entities, 2 * stated.num_relations
        head, relation, tail = torch.from_numpy(np.ascontiguousarray(stated.triple_rows.T).astype(np.int64))
        ways = (self._place(head, 2 * relation, tail), self._place(tail, 2 * relation + 1, head))
        self.register_buffer("known", torch.cat(ways).unique(), persistent=False)

    def ignored(self, embedded: dict[str, Tensor], own: slice, backward: bool) -> Tensor:
        """Answers that the graph states to a question, and the question's own answer where it stands again."""
        ids = embedded[self.identity]
        asked, answers = (ids, ids[own]) if backward else (ids[own], ids)
        question, answer = (asked[None], answers[:, None]) if backward else (asked[:, None], answers[None])
        stated = self._stated(self._place(question[..., 0], question[..., 1], answer[..., 2]))
        everyone = torch.arange(len(ids), device=ids.device)
        return (stated | (question[..., 2] == answer[..., 2])) & (everyone[own, None] != everyone)

    def ignored_self(self, ids: Tensor) -> Tensor:
        """Questions whose own entity is an answer."""
        return self._stated(self._place(ids[:, 0], ids[:, 1], ids[:, 0])) | (ids[:, 0] == ids[:, 2])

    def _place(self, entity: Tensor, relation: Tensor, answer: Tensor) -> Tensor:
        """A number for each question and answer."""
        return (entity * self.relations + relation) * self.entities + answer

    def _stated(self, places: Tensor) -> Tensor:
        if not len(self.known):
            return torch.zeros_like(places, dtype=torch.bool)
        at = torch.searchsorted(self.known, places).clamp_max(len(self.known) - 1)
        return self.known[at] == places


class AnswerScores:
    """The products of the vectors of questions and entities (`kg.vectors.scores.TripleScores`)."""

    def __init__(self, task: Task, network: Network, head: SimkgcHead, graph: GraphStore, batch_size: int) -> None:
        self.task, self.network, self.head, self.graph, self.batch_size = task, network, head, graph, batch_size
        self.question, self.answer = head.streams.values()
        self.entities = self._read([CastMember("passage", each, stream=self.answer) for each in graph.ids], self.answer)

    def tails(self, heads: Tensor, relations: Tensor) -> Tensor:
        """[triples, entities]."""
        return self._asked(heads, relations, inverse=False)

    def heads(self, relations: Tensor, tails: Tensor) -> Tensor:
        """[triples, entities]."""
        return self._asked(tails, relations, inverse=True)

    def triples(self, triples: Tensor) -> Tensor:
        """[triples, 3] -> [triples]: as answers of (h, r, ?)."""
        head, relation, tail = triples.T
        return self.tails(head, relation).gather(1, tail[:, None]).squeeze(1)

    def _asked(self, entities: Tensor, relations: Tensor, inverse: bool) -> Tensor:
        ids, names = self.graph.ids, self.graph.relation_ids
        pairs = zip(entities.tolist(), relations.tolist(), strict=True)
        asked = [CastMember("query", ids[e], names[r], inverse, self.question) for e, r in pairs]
        return self._read(asked, self.question) @ self.entities.T

    def _read(self, parts: list[CastMember], stream: str) -> Tensor:
        def vectors(read: NetworkOutput) -> Tensor:
            return self.head.vectors(read, stream)

        return encoded(parts, self.task, self.network, stream, self.batch_size, vectors_of=vectors)
