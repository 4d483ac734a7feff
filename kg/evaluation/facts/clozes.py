"""Cloze sentences of the triples of a graph, and the candidates that their objects are ranked among.

Petroni et al., "Language Models as Knowledge Bases?", EMNLP 2019 (arXiv 1909.01066; LAMA): a relation has a sentence
with places for the subject [X] and the object [Y]. Here an object may have several tokens, and the candidates are those
of the relation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from kg.graph.store import GraphStore
from workbench.core.errors import WorkbenchError
from workbench.sequences.sequence import Sample

CANDIDATES = "candidates.json"
"""The file of a cloze set's folder."""
SUBJECT, OBJECT = "[X]", "[Y]"
Range = Literal["objects", "types"]
Triple = tuple[str, str, str]


def check_template(template: str, where: str) -> None:
    """Raises WorkbenchError: it has not one place for the subject and one for the object."""
    for place in (SUBJECT, OBJECT):
        if template.count(place) != 1:
            raise WorkbenchError(
                f"{where}: the template {template!r} has {template.count(place)} times {place}; write one {SUBJECT} "
                f"where the subject stands and one {OBJECT} where the object does"
            )


def cloze(template: str, triple: Triple, labels: tuple[str, str]) -> Sample:
    """The sentence of a triple, its object in `mask_spans`, both its entities in `spans`.

    Args:
        labels: how subject and object are spelt.
    """
    text = template
    places: dict[str, tuple[int, int]] = {}
    first, second = sorted(zip((SUBJECT, OBJECT), labels, strict=True), key=lambda each: template.index(each[0]))
    for mark, label in (first, second):
        start = text.index(mark, max((end for _, end in places.values()), default=0))
        text = text[:start] + label + text[start + len(mark) :]
        places[mark] = (start, start + len(label))
    head, relation, tail = triple
    spans = sorted([[*places[SUBJECT], head, 1.0], [*places[OBJECT], tail, 1.0]])
    meta = {"relation": relation, "subject": head, "object": tail}
    return {"text": text, "mask_spans": [list(places[OBJECT])], "spans": spans, "meta": meta}


def candidates_of(
    store: GraphStore, relations: Sequence[str], allowed: Range, others: Sequence[Triple] = ()
) -> dict[str, list[dict[str, Any]]]:
    """The candidates of each relation, `{id, label, count}`, sorted by id.

    Entities without a label are none; those with the same label are one candidate where they are ranked.

    Args:
        allowed: the `objects` that the relation has, or all entities that have a type of one of these (`types`).
        others: triples next to those of the graph, whose objects are candidates too; `count` is of the graph alone.

    Raises:
        WorkbenchError: the graph has no types of a relation's objects.
    """
    rows, found = store.triple_rows, {}
    sharing = _entities_by_type(store) if allowed == "types" else {}
    for relation in relations:
        tails, counts = np.unique(rows[rows[:, 1] == store.relation_row(relation), 2], return_counts=True)
        count = {store.ids[row]: number for row, number in zip(tails.tolist(), counts.tolist(), strict=True)}
        ids = set(count) | {tail for _, name, tail in others if name == relation and tail in store}
        if allowed == "types":
            types = {name for entity in ids for name in store.types(entity)}
            if not types:
                raise WorkbenchError(f"the graph has no types of the objects of {relation!r}; take those objects alone")
            ids = ids.union(*(sharing[name] for name in types))
        labels = {entity: store.name_of(entity) for entity in sorted(ids)}
        found[relation] = [{"id": e, "label": label, "count": count.get(e, 0)} for e, label in labels.items() if label]
    return found


def _entities_by_type(store: GraphStore) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for entity in store.ids:
        for name in store.types(entity):
            found.setdefault(name, []).append(entity)
    return found
