"""Scores of triples: the interface of every model of triples, and scores from vectors alone.

Triples are rows (h, r, t) of a graph's tables. A greater score is a better triple.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from kg.graph.store import GraphStore
from kg.vectors.vectors import GraphVectors
from workbench.core.errors import WorkbenchError


class TripleScores(Protocol):
    """A model of triples. All tensors are on the CPU; those given are int64."""

    def triples(self, triples: Tensor) -> Tensor:
        """[triples, 3] -> [triples]: how well each one holds."""

    def tails(self, heads: Tensor, relations: Tensor) -> Tensor:
        """[triples, entities]: how well each entity completes (h, r, ?)."""

    def heads(self, relations: Tensor, tails: Tensor) -> Tensor:
        """[triples, entities]: how well each entity completes (?, r, t)."""


class ByTriple:
    """Scores of a model that reads a triple as a whole: all entities are scored one after the other.

    A subclass defines `triples`.
    """

    def __init__(self, num_entities: int) -> None:
        self.num_entities = num_entities

    def triples(self, triples: Tensor) -> Tensor:
        """[triples, 3] -> [triples]."""
        raise NotImplementedError(f"{type(self).__name__} must define triples")

    def tails(self, heads: Tensor, relations: Tensor) -> Tensor:
        """[triples, entities]."""
        each, every = self._paired(len(heads))
        return self.triples(torch.stack([heads[each], relations[each], every], 1)).view(len(heads), -1)

    def heads(self, relations: Tensor, tails: Tensor) -> Tensor:
        """[triples, entities]."""
        each, every = self._paired(len(tails))
        return self.triples(torch.stack([every, relations[each], tails[each]], 1)).view(len(tails), -1)

    def _paired(self, questions: int) -> tuple[Tensor, Tensor]:
        """(question, entity) for each question and every entity: [questions x entities] twice."""
        every = torch.arange(self.num_entities)
        return torch.arange(questions).repeat_interleave(self.num_entities), every.repeat(questions)


class Interaction(NamedTuple):
    """How vectors make a score: a query of (h, r) is compared with tails, one of (t, r) with heads.

    `norm` is that of the difference, negated; None compares by the inner product.
    """

    tail_query: Callable[[Tensor, Tensor], Tensor]
    head_query: Callable[[Tensor, Tensor], Tensor]
    norm: float | None

    def all(self, query: Tensor, entities: Tensor) -> Tensor:
        """[queries, size], [entities, size] -> [queries, entities]."""
        return query @ entities.T if self.norm is None else -torch.cdist(query, entities, p=self.norm)

    def each(self, query: Tensor, entities: Tensor) -> Tensor:
        """[queries, size] twice -> [queries]."""
        if self.norm is None:
            return (query * entities).sum(-1)
        return -torch.linalg.vector_norm(query - entities, ord=self.norm, dim=-1)


def _times(left: Tensor, right: Tensor) -> Tensor:
    """The product of complex vectors, whose real parts stand before the imaginary ones."""
    return _parts(_complex(left) * _complex(right))


def _times_conjugate(left: Tensor, right: Tensor) -> Tensor:
    return _parts(_complex(left) * _complex(right).conj())


def _convolved(left: Tensor, right: Tensor) -> Tensor:
    """[.., i] = sum over k of left[k] right[i - k], in a circle."""
    size = left.shape[-1]
    return torch.fft.irfft(torch.fft.rfft(left) * torch.fft.rfft(right), n=size)


def _correlated(tails: Tensor, relations: Tensor) -> Tensor:
    """[.., k] = sum over i of relations[i] tails[i + k], in a circle."""
    size = tails.shape[-1]
    return torch.fft.irfft(torch.fft.rfft(relations).conj() * torch.fft.rfft(tails), n=size)


def _half_times(left: Tensor, right: Tensor) -> Tensor:
    return left * right / 2


def _cp_tail(heads: Tensor, relations: Tensor) -> Tensor:
    as_head = heads.chunk(2, dim=-1)[0]
    return torch.cat([torch.zeros_like(as_head), as_head * relations], dim=-1)


def _cp_head(tails: Tensor, relations: Tensor) -> Tensor:
    as_tail = tails.chunk(2, dim=-1)[1]
    return torch.cat([as_tail * relations, torch.zeros_like(as_tail)], dim=-1)


def _complex(vectors: Tensor) -> Tensor:
    return torch.complex(*vectors.chunk(2, dim=-1))


def _parts(vectors: Tensor) -> Tensor:
    return torch.cat([vectors.real, vectors.imag], dim=-1)


INTERACTIONS: Mapping[str, Interaction] = {
    "transe": Interaction(torch.add, torch.sub, 1),  # -|h + r - t|_1, as pykeen's (Bordes et al., NeurIPS 2013)
    "distmult": Interaction(torch.mul, torch.mul, None),  # <h, r, t> (Yang et al., arXiv 1412.6575)
    "complex": Interaction(_times, _times_conjugate, None),  # Re <h, r, conj t> (Trouillon et al., arXiv 1606.06357)
    "rotate": Interaction(_times, _times_conjugate, 2),  # -|h r - t|_2, |r| = 1 (Sun et al., arXiv 1902.10197)
    # <r, h * t>, * the circular correlation (Nickel et al., AAAI 2016)
    "hole": Interaction(_convolved, _correlated, None),
    # (<h_0, r_0, t_0> + <t_1, r_1, h_1>) / 2 as pykeen 1.11 has it. It has the vectors of head and tail in one order,
    # so that they play one part, other than in the paper (Kazemi and Poole, NeurIPS 2018)
    "simple": Interaction(_half_times, _half_times, None),
    # <h as head, r, t as tail> (Hitchcock 1927; Lacroix et al., ICML 2018)
    "cp": Interaction(_cp_tail, _cp_head, None),
}
"""Interactions by the model's name in lower case, letters only."""
MORE_OF = {"simple": ("entity.1", "relation.1"), "cp": ("entity.1",)}
"""The further vectors of a model (`kg.vectors.vectors.GraphVectors.more`): they stand behind the first ones in a
query."""


def plain_name(model: str) -> str:
    """The name of a model as `INTERACTIONS` has it."""
    return re.sub(r"[^a-z]", "", model.lower())


class VectorScores:
    """Scores of a graph's triples by vectors of its entities and relations.

    Heads are scored by the triple, as tails are, also where a model was trained on inverse triples: a file of vectors
    has no inverse relations.

    Raises:
        WorkbenchError: the vectors don't say of which model they are, vectors alone don't score it, or an entity or a
            relation of the graph has none.
    """

    def __init__(self, vectors: GraphVectors, graph: GraphStore) -> None:
        model = str(vectors.provenance.get("model", ""))
        name = plain_name(model)
        if name not in INTERACTIONS:
            raise WorkbenchError(
                f"vectors of the model {model or '(none is named)'} cannot score triples by themselves; those of "
                f"{', '.join(INTERACTIONS)} can. Rank triples when they are trained (prepare vectors --held-out)"
            )
        lacking = [each for each in MORE_OF.get(name, ()) if each not in vectors.more]
        if lacking:
            raise WorkbenchError(
                f"the vectors of {model} lack {', '.join(lacking)}, without which they cannot score triples: a file of "
                "an earlier version. Train them again (workbench prepare vectors)"
            )
        self.interaction = INTERACTIONS[name]
        if "norm" in vectors.provenance:  # of vectors that were not trained by pykeen
            self.interaction = self.interaction._replace(norm=vectors.provenance["norm"])
        relation_rows = {relation: row for row, relation in enumerate(vectors.relation_ids)}
        entities = [vectors.vectors, *_further(vectors, name, "entity.")]
        relations = [vectors.relations, *_further(vectors, name, "relation.")]
        self.entity = torch.cat(entities, dim=1)[_rows(vectors.rows, graph.ids, "entities")]
        self.relation = torch.cat(relations, dim=1)[_rows(relation_rows, graph.relation_ids, "relations")]

    def triples(self, triples: Tensor) -> Tensor:
        """[triples, 3] -> [triples]."""
        heads, relations, tails = triples.T
        query = self.interaction.tail_query(self.entity[heads], self.relation[relations])
        return self.interaction.each(query, self.entity[tails])

    def tails(self, heads: Tensor, relations: Tensor) -> Tensor:
        """[triples, entities]."""
        query = self.interaction.tail_query(self.entity[heads], self.relation[relations])
        return self.interaction.all(query, self.entity)

    def heads(self, relations: Tensor, tails: Tensor) -> Tensor:
        """[triples, entities]."""
        query = self.interaction.head_query(self.entity[tails], self.relation[relations])
        return self.interaction.all(query, self.entity)


def _further(vectors: GraphVectors, name: str, kind: str) -> list[Tensor]:
    return [vectors.more[each] for each in MORE_OF.get(name, ()) if each.startswith(kind)]


def _rows(rows: Mapping[str, int], ids: Sequence[str], what: str) -> Tensor:
    found = [rows.get(name, -1) for name in ids]
    if -1 in found:
        raise WorkbenchError(
            f"{found.count(-1):,} of the {len(found):,} {what} of the graph have no vector, such as "
            f"{ids[found.index(-1)]!r}; give the graph that the vectors were trained on"
        )
    return torch.tensor(found, dtype=torch.long)
