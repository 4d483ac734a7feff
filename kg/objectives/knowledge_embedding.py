"""Knowledge embedding: entities are where their descriptions are read, and relations lead from one to another.

Wang et al., "KEPLER: A Unified Model for Knowledge Embedding and Pre-trained Language Representation", TACL 2021
(arXiv 1911.06136), as released. With h, t the states of the first token of the descriptions of head and tail, and r
the relation's vector,

    s(h, r, t) = margin - |h + r - t|
    L = -1/2 log sigmoid(s(h, r, t)) - 1/2 mean over false triples (h', r, t') of log sigmoid(-s(h', r, t'))

Half of the false triples differ in their head, half in their tail. KEPLER-Rel reads r from the relation's text. In
KEPLER-Cond entities are also read with the relation behind them (h_r, t_r): the true triple's score is the mean of
s(h_r, r, t) and s(h, r, t_r), the false ones' are s(h', r, t_r) and s(h_r, r, t').

The released code encodes h and h_r, t and t_r one by one also where they are the same text; here every text of a
micro-batch is encoded once, whatever roles it has. Without dropout that is the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby, islice
from typing import Literal

import numpy as np
from torch import Tensor

from kg.graph.entity_facts import Direction
from kg.graph.negatives import right_entities, stated_entities, wrong_entities
from kg.graph.stated_triples import StatedTriples
from kg.graph.store import GraphStore
from kg.objectives._descriptions import encoded, reading
from kg.objectives._translation import FALSE, NOBODY, TEXTS, TranslationHead
from kg.sequences.description_roles import CAST, CastMember
from kg.vectors.scores import TripleScores, VectorScores
from kg.vectors.vectors import GraphVectors
from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draw, Draws
from workbench.core.options.bounds import Location, Name, Positive, Seed, Size, Word
from workbench.models.network import Network
from workbench.pretraining.objective import BatchTargets, Head, Objective
from workbench.pretraining.task import Task
from workbench.sequences.batch import Batch
from workbench.sequences.sequence import Sample, Sequence


@dataclass(frozen=True)
class NegativeTriples:
    """The false triples of a true one.

    Attributes:
        number: so many with another head, and so many with another tail (the released code: 1).
        source: where the others are drawn from: the entities that a triple of the `graph` names, or those of the
            `micro-batch`, which are encoded anyway; a triple for which that has none goes without.
        filtered: a triple that the graph states is no false one (the released code).
    """

    number: Size = 1
    source: Literal["graph", "micro-batch"] = "graph"
    filtered: bool = True


class KnowledgeEmbedding(StatedTriples, Objective):
    """Knowledge embedding (KEPLER, arXiv:1911.06136) of a corpus of triples. Entities are encoded from their
    descriptions, for sequences of the builder `kg.described_triple`.

    Args:
        graph: a triples corpus, or a graph store: the corpus's own, with the descriptions of all its entities.
        margin: how near a true triple is, in the length of vectors.
        norm: of the difference: 2 (the released code), or 1.
        negatives: `NegativeTriples`.
        relations: a vector of each is learned (`vectors`), or read from its text (`texts`, KEPLER-Rel).
        conditioned: entities are also read with the relation behind them (KEPLER-Cond).
        stream: of the descriptions.
        control: the recipe's; `shuffled-kg` and `permuted-kg` have the tails of `graph.under(control, seed)`.
    """

    reads = ("triples",)

    def __init__(
        self,
        graph: Location | GraphStore,
        margin: Positive = 4.0,
        norm: Literal[1, 2] = 2,
        negatives: NegativeTriples | None = None,
        relations: Literal["vectors", "texts"] = "vectors",
        conditioned: bool = False,
        stream: Word = "text",
        control: Name | None = None,
        seed: Seed = 0,
    ) -> None:
        self.open_graph(graph, control, seed)
        self.others = stated_entities(self.graph)
        self.margin, self.norm = margin, norm
        self.negatives = negatives or NegativeTriples()
        self.relations, self.conditioned = relations, conditioned
        self.stream = stream

    def arrange(self, samples: list[Sample], draws: Draws) -> list[Sample]:
        """Each triple as a sample of its own, with what is read of it and, as `labels`, the rows in the graph of its
        head, relation and tail."""
        return [
            {**sample, **self._reported(triple, draws.of(draw)), "draw": draw}
            for sample in samples
            for number, triple in enumerate(self.stated_triples(sample))
            for draw in [(*sample.get("draw", ()), number)]
        ]

    def corrupt(self, sequences: list[Sequence], draws: Draws) -> BatchTargets:
        """Writes who is who; changes nothing.

        `encoded` [texts] are the sequences of different texts; `head`, `tail`, `head_of_relation`, `tail_of_relation`
        [triples], `false_heads` and `false_tails` [triples, number] places among them, -1 for none; `relation`
        [triples] such places, or rows of the graph's relations.

        Raises:
            WorkbenchError: the sequences are not those of triples, all of them.
        """
        places, encoded = _distinct(sequences)
        triples = []
        for _, group in groupby(zip(sequences, places, strict=True), key=lambda each: each[0].group):
            triples.append(self._triple(list(group)))
        if self.negatives.source == "micro-batch":
            known = {row: place for t in triples for row, place in zip(t.ends, (t.head, t.tail), strict=True)}
            triples = [self._with_others(triple, known, draws.of(triple.draw)) for triple in triples]
        columns = {name: np.array([getattr(t, name) for t in triples], np.int64) for name in (*TEXTS, *FALSE)}
        return {"encoded": encoded, **columns}

    def count(self, batch: Batch) -> float:
        """Triples."""
        return float(len(batch.targets.get(self.name, {}).get("head", ())))

    def head(self, network: Network) -> Head:
        relations = self.graph.num_relations if self.relations == "vectors" else None
        return TranslationHead(network.sizes[self.stream], relations, self.margin, self.norm, self.stream)

    def described(
        self, task: Task, network: Network, graph: GraphStore, batch_size: int, first: int = 0, count: int | None = None
    ) -> Tensor:
        """[entities, hidden_size]: vectors of `count` entities of a graph, read from their descriptions.

        Args:
            first: the number of the first one, a multiple of `batch_size`.

        Raises:
            WorkbenchError: the task has another builder than `kg.described_triple`.
        """
        ids = islice(graph.ids, first, None if count is None else first + count)
        members = [CastMember("entity", entity) for entity in ids]
        return encoded(members, reading(task, graph), network, self.stream, batch_size, first)

    def entity_vectors(
        self,
        task: Task,
        network: Network,
        head: Head,
        graph: GraphStore,
        batch_size: int,
        entities: Tensor | None = None,
    ) -> GraphVectors:
        """Vectors of a graph's entities, read from their descriptions, and of its relations.

        Args:
            entities: the vectors of all entities (`described`), where they are known.

        Raises:
            WorkbenchError: a vector of each relation was learned, and the graph has others; or the task has another
                builder than `kg.described_triple`.
        """
        assert isinstance(head, TranslationHead)
        read = partial(encoded, task=reading(task, graph), network=network, stream=self.stream, batch_size=batch_size)
        if entities is None:
            entities = self.described(task, network, graph, batch_size)
        if head.relations is None:
            relations = read([CastMember("relation", relation=relation) for relation in graph.relation_ids])
        else:
            rows = [self.graph.relation_ids.find(relation) for relation in graph.relation_ids]
            lacking = [name for name, row in zip(graph.relation_ids, rows, strict=True) if row < 0]
            if lacking:
                raise WorkbenchError(self._other_graph(graph, lacking))
            relations = head.relations.weight.detach().float().cpu()[rows]
        model = {"model": "TransE", "norm": self.norm}
        return GraphVectors(list(graph.ids), entities, list(graph.relation_ids), relations, model)

    def _other_graph(self, graph: GraphStore, lacking: list[str]) -> str:
        """A message that names relations of a graph without a learned vector."""
        return (
            f"{len(lacking):,} of the {graph.num_relations:,} relations of {graph.path}, such as {lacking[0]!r}, have "
            f"no vector: the run was trained on another graph, {self.graph.path}. Give that one, or one with its "
            "relations; or pretrain a run on this one"
        )

    def triple_scores(
        self, task: Task, network: Network, head: Head, graph: GraphStore, batch_size: int
    ) -> TripleScores:
        """Scores of a graph's triples, for evaluation: every entity is read once."""
        return VectorScores(self.entity_vectors(task, network, head, graph, batch_size), graph)

    def _reported(self, triple: tuple[str, str, str], rng: np.random.Generator) -> dict[str, object]:
        head, relation, tail = triple
        cast = [CastMember("head", head), CastMember("tail", tail)]
        if self.conditioned:
            cast += [CastMember("head of relation", head, relation), CastMember("tail of relation", tail, relation)]
        if self.relations == "texts":
            cast.append(CastMember("relation", relation=relation))
        if self.negatives.source == "graph":
            heads = self._drawn(self._right(tail, relation, "in", head), rng)
            tails = self._drawn(self._right(head, relation, "out", tail), rng)
            cast += [CastMember("false head", entity) for entity in heads] + [
                CastMember("false tail", entity) for entity in tails
            ]
        rows = {"head": self.graph.row(head), "tail": self.graph.row(tail)}
        return {CAST: cast, "labels": {**rows, "relation": self.graph.relation_row(relation)}}

    def _right(self, entity: str, relation: str, direction: Direction, own: str) -> np.ndarray:
        """Rows of entities that make no false triple in the place of `own`."""
        if self.negatives.filtered:
            return right_entities(self.stated, entity, relation, direction, own)
        return np.array([self.graph.row(own)])

    def _drawn(self, right: np.ndarray, rng: np.random.Generator) -> list[str]:
        """Others of the graph, by their ids."""
        graph, number = self.graph, self.negatives.number
        rows = wrong_entities(self.others, right, number, rng, lambda row: bool(graph.text_of(graph.ids[row])))
        return [graph.ids[row] for row in rows]

    def _triple(self, group: list[tuple[Sequence, int]]) -> _Triple:
        found: dict[str, list[int]] = {}
        for sequence, place in group:
            found.setdefault(sequence.role, []).append(place)
        one = ["head", "tail", *(["head of relation", "tail of relation"] if self.conditioned else [])]
        one += ["relation"] if self.relations == "texts" else []
        if any(len(found.get(role, ())) != 1 for role in one):
            raise WorkbenchError(
                f"objective {self.name!r} reads a triple's sequences all together (one each of {', '.join(one)}; found "
                f"{', '.join(found)}): use the builder kg.described_triple, and no transform that leaves sequences out"
            )
        (head,), (tail,) = found["head"], found["tail"]
        labels = group[0][0].labels
        return _Triple(
            draw=group[0][0].group,
            ends=(labels["head"], labels["tail"]),
            relation_row=labels["relation"],
            head=head,
            tail=tail,
            head_of_relation=found.get("head of relation", [head])[0],
            tail_of_relation=found.get("tail of relation", [tail])[0],
            relation=found.get("relation", [labels["relation"]])[0],
            false_heads=self._padded(found.get("false head", [])),
            false_tails=self._padded(found.get("false tail", [])),
        )

    def _with_others(self, triple: _Triple, known: dict[int, int], rng: np.random.Generator) -> _Triple:
        """The triple with false ones of the entities of the micro-batch, whose places are known by their rows."""
        ids, relation = self.graph.ids, self.graph.relation_ids[triple.relation_row]
        head, tail = (ids[row] for row in triple.ends)
        heads, tails = self._right(tail, relation, "in", head), self._right(head, relation, "out", tail)

        def drawn(right: np.ndarray) -> list[int]:
            others = np.setdiff1d(list(known), right)
            rows = rng.choice(others, self.negatives.number).tolist() if len(others) else []
            return self._padded([known[row] for row in rows])

        return replace(triple, false_heads=drawn(heads), false_tails=drawn(tails))

    def _padded(self, places: list[int]) -> list[int]:
        return places + [NOBODY] * (self.negatives.number - len(places))


@dataclass(frozen=True)
class _Triple:
    """A triple of the micro-batch: places of its texts; `draw` is its group's, `ends` and `relation_row` are rows of
    the graph."""

    draw: Draw
    ends: tuple[int, int]
    relation_row: int
    head: int
    tail: int
    head_of_relation: int
    tail_of_relation: int
    relation: int
    false_heads: list[int]
    false_tails: list[int]


def _distinct(sequences: list[Sequence]) -> tuple[list[int], np.ndarray]:
    """For each sequence the number of what it holds, equal where all streams are; and the first sequence of each."""
    numbers: dict[tuple[tuple[str, str, bytes], ...], int] = {}
    places, first = [], []
    for number, sequence in enumerate(sequences):
        held = tuple(
            (stream, name, np.ascontiguousarray(values).tobytes())
            for stream, fields in sorted(sequence.streams.items())
            for name, values in sorted(fields.items())
        )
        if held not in numbers:
            numbers[held] = len(numbers)
            first.append(number)
        places.append(numbers[held])
    return places, np.array(first, np.int64)
