"""False triples: the entities that may take the place of a head or a tail.

What a graph states is no false triple (the filtered setting of Bordes et al., NeurIPS 2013, for negatives).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kg.graph.facts import Direction
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


def wrong_entities(
    entities: int,
    right: np.ndarray,
    number: int,
    rng: np.random.Generator,
    usable: Callable[[int], bool] = lambda row: True,
) -> list[int]:
    """So many rows below `entities` that are not `right`, each drawn from all that are usable; none where there is
    none. One may come twice."""
    drawn = rng.integers(entities, size=number + TRIES)
    wrong = [row for row in drawn[~np.isin(drawn, right)].tolist() if usable(row)][:number]
    if len(wrong) == number:
        return wrong
    others = [row for row in np.setdiff1d(np.arange(entities), right).tolist() if usable(row)]
    return rng.choice(others, number).tolist() if others else []
