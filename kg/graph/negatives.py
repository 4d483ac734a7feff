"""False triples: the entities that may take the place of a head or a tail.

What a graph states is no false triple (the filtered setting of Bordes et al., NeurIPS 2013, for negatives). Entities
that are in no triple of the graph are none of the others: those that an inductive split holds out are there with their
texts alone, and a model that met them as false answers in training would have seen them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kg.graph.entity_facts import Direction
from kg.graph.store import GraphStore

TRIES = 32


def right_entities(graph: GraphStore, entity: str, relation: str, direction: Direction, own: str) -> np.ndarray:
    """Rows of the entities that complete a true triple.

    Args:
        entity, relation: what is known of the triple.
        direction: `out` where the entity is its head, and tails are asked for; `in` where it is its tail.
        own: the entity at the other end of the triple itself, which the graph may not state (a held-out one).
    """
    return np.append(graph.facts(entity, direction, [relation]).others, graph.row(own))


def stated_entities(graph: GraphStore) -> np.ndarray:
    """Rows of the entities that some triple names."""
    return np.flatnonzero(graph.degrees).astype(np.int32)


def wrong_entities(
    entities: np.ndarray,
    right: np.ndarray,
    number: int,
    rng: np.random.Generator,
    usable: Callable[[int], bool] = lambda row: True,
) -> list[int]:
    """So many of the rows `entities` that are not `right`, each drawn from all that are usable; none where there is
    none. One may come twice."""
    if not len(entities):
        return []
    drawn = entities[rng.integers(len(entities), size=number + TRIES)]
    wrong = [row for row in drawn[~np.isin(drawn, right)].tolist() if usable(row)][:number]
    if len(wrong) == number:
        return wrong
    others = [row for row in np.setdiff1d(entities, right).tolist() if usable(row)]
    return rng.choice(others, number).tolist() if others else []
