"""Entities of the same type: for each entity, others that could stand in its place."""

from __future__ import annotations

from array import array

import numpy as np

from kg.graph.store import GraphStore
from workbench.core.errors import WorkbenchError

TRIES = 10


class Peers:
    """The entities of a graph that have a label, by type. Holds 4 bytes for each type of each of them.

    Raises:
        WorkbenchError: no two entities with a label have a type in common.
    """

    def __init__(self, graph: GraphStore) -> None:
        self.graph = graph
        self.types: dict[str, int] = {}
        types, rows = array("i"), array("i")
        for row in range(graph.num_entities):
            if graph.label_of(row):
                for name in dict.fromkeys(graph.texts_of(row).get("types", ())):
                    types.append(self.types.setdefault(name, len(self.types)))
                    rows.append(row)
        numbers = np.frombuffer(types, np.int32) if types else np.zeros(0, np.int32)
        order = np.argsort(numbers, kind="stable")
        self.members = np.frombuffer(rows, np.int32)[order] if rows else numbers
        self.offsets = np.searchsorted(numbers[order], np.arange(len(self.types) + 1))
        if not (np.diff(self.offsets) > 1).any():
            raise WorkbenchError(
                f"the graph {graph.path} has no two entities with a label and a type in common; build it with types: "
                "`workbench prepare triples GRAPH --entities LABELS.jsonl --types TYPES.jsonl --output FOLDER`"
            )

    def other(self, entity: str, said: str, rng: np.random.Generator) -> tuple[str, str] | None:
        """Another entity of the same type, drawn, and its label; of several types one is drawn first.

        Args:
            said: how the entity is named in the text; neither that nor another name of the entity is the label.

        Returns:
            None where the graph does not hold the entity, or draws find none.
        """
        row = self.graph.ids.find(entity)
        if row < 0:
            return None
        texts = self.graph.texts_of(row)
        found = [self.of(name) for name in texts.get("types", ())]
        found = [members for members in found if (members != row).any()]
        if not found:
            return None
        members = found[int(rng.integers(len(found)))]
        own = {name.casefold() for name in (said, self.graph.label_of(row), *texts.get("aliases", ()))}
        for _ in range(TRIES):
            drawn = int(members[rng.integers(len(members))])
            label = self.graph.label_of(drawn)
            if drawn != row and label.casefold() not in own:
                return self.graph.ids[drawn], label
        return None

    def of(self, name: str) -> np.ndarray:
        """The rows of the entities of a type that have a label."""
        number = self.types.get(name, -1)
        return self.members[:0] if number < 0 else self.members[self.offsets[number] : self.offsets[number + 1]]
