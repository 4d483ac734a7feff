"""Errors and gaps of a graph, counted by reason."""

from __future__ import annotations

from kg.graph.store import GraphStore

FAULTS = {
    "duplicates": "triples that came again",
    "self_loops": "triples from an entity to itself",
    "shared_labels": "entities whose label another has",
    "mixed_labels": "labels with a word of two scripts",
    "empty_labels": "labels that are empty",
}
"""The counts in a graph's `graph.json` that show an error, with their descriptions."""


def faults(store: GraphStore) -> dict[str, int]:
    """How often something is wrong, by reason; without what is not.

    Where texts are given, they should know every entity of the triples, and say more than labels. A graph without any
    lacks them (`lacks`), as one does whose ids are words.
    """
    meta = store.meta
    found = {reason: meta.get(name, 0) for name, reason in FAULTS.items()}
    if not meta.get("words") and (meta["labels"] or meta["descriptions"]):
        found["entities that the texts don't know"] = meta.get("unknown", 0)
        if not meta["descriptions"] and not meta["typed"]:
            found["entities of texts without any description or type"] = meta["entities"]
    return {reason: count for reason, count in found.items() if count}


def lacks(store: GraphStore) -> dict[str, int]:
    """How many entities and relations are without something that a system may ask for; without what all have.

    Where ids are words, they are labels.
    """
    meta = store.meta
    named = meta.get("words", False)
    found = {
        "entities in no triple": meta["isolated"],
        "entities without a label": 0 if named else meta["entities"] - meta["labels"],
        "entities without a description": meta["entities"] - meta["descriptions"],
        "entities without types": meta["entities"] - meta["typed"],
        "relations without a label": 0 if named else meta["unnamed_relations"],
    }
    return {reason: count for reason, count in found.items() if count}
