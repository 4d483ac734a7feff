"""Writing a knowledge graph: triples and texts as they come -> the arrays of `kg.graph.store`."""

from __future__ import annotations

import json
import os
import shutil
from array import array
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from kg.graph.strings import StringWriter, digest64, save_strings
from workbench.errors import WorkbenchError
from workbench.files.drafts import draft_folder
from workbench.files.sealed import seal

META = "graph.json"
Texts = Mapping[str, Mapping[str, Any]] | Iterable[Mapping[str, Any]]


class GraphBuilder:
    """Collects a graph in a temporary folder beside `path`; `finish` gives it its name.

    A context manager: when its block fails, or ends without `finish`, nothing is left behind.
    """

    def __init__(self, path: Path) -> None:
        if path.exists():
            raise WorkbenchError(f"{path} exists already; remove it, or name another folder for the graph")
        self.path = path
        self.draft = draft_folder(path)
        self.entities: dict[str, int] = {}
        self.relations: dict[str, int] = {}
        self.heads, self.rels, self.tails = array("i"), array("i"), array("i")
        self.labels = StringWriter(self.draft, "labels")
        self.texts = StringWriter(self.draft, "texts")
        self.label_spans, self.text_spans = array("q"), array("q")  # row, start, end of each
        self.described: set[int] = set()
        self.named = array("Q")  # hashes of the labels

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.labels.close()
        self.texts.close()
        if self.draft.exists():
            shutil.rmtree(self.draft)

    def add_triple(self, triple: tuple[str, str, str]) -> None:
        """Add (head id, relation id, tail id).

        Raises:
            WorkbenchError: it is not three non-empty strings.
        """
        if len(triple) != 3 or not all(isinstance(name, str) and name for name in triple):
            raise WorkbenchError(
                f"triple {len(self.heads) + 1} is {triple!r}; a triple is three non-empty strings: head, relation, tail"
            )
        head, relation, tail = triple
        entities, relations = self.entities, self.relations
        self.heads.append(entities.setdefault(head, len(entities)))
        self.rels.append(relations.setdefault(relation, len(relations)))
        self.tails.append(entities.setdefault(tail, len(entities)))

    def add_texts(self, entity: str, row: Mapping[str, Any]) -> None:
        """Add what is written about an entity: label, aliases, description, types, those that `row` has.

        A label that repeats the id is none.

        Raises:
            WorkbenchError: the id is not a non-empty string, the entity is described already, or a text is no text.
        """
        if not isinstance(entity, str) or not entity:
            raise WorkbenchError(f"an entity's texts have the id {entity!r}; an id is a non-empty string")
        number = self.entities.setdefault(entity, len(self.entities))
        if number in self.described:
            raise WorkbenchError(f"the entity {entity!r} is described twice; keep one row for each id")
        self.described.add(number)
        if row.get("label") and row["label"] != entity:
            self.label_spans.extend((number, *self.labels.write(_text(entity, row, "label"))))
            self.named.append(digest64(row["label"]))
        more: dict[str, Any] = {name: _texts(entity, row, name) for name in ("aliases", "types") if row.get(name)}
        if row.get("description"):
            more["description"] = _text(entity, row, "description")
        if more:
            self.text_spans.extend((number, *self.texts.write(json.dumps(more, ensure_ascii=False))))

    def describes(self, entity: str) -> bool:
        """Whether texts of the entity were added."""
        return self.entities.get(entity, -1) in self.described

    def finish(self, relation_labels: Mapping[str, str]) -> None:
        """Write the arrays and move the graph to its place."""
        count = len(self.entities)
        triples = _distinct(*(np.frombuffer(c, np.int32) for c in (self.heads, self.rels, self.tails)))
        np.save(self.draft / "triples.npy", triples)
        np.save(self.draft / "out_offsets.npy", _offsets(triples[0], count))
        in_order, in_offsets = by_tail(triples[2], count)
        np.save(self.draft / "in_order.npy", in_order)
        np.save(self.draft / "in_offsets.npy", in_offsets)
        save_strings(self.draft, "entity_ids", self.entities, index=True)
        save_strings(self.draft, "relation_ids", self.relations, index=True)
        save_strings(self.draft, "relation_labels", (relation_labels.get(r) or "" for r in self.relations))
        self.labels.finish(_spans(self.label_spans, count))
        self.texts.finish(_spans(self.text_spans, count))
        meta = {
            "entities": count,
            "relations": len(self.relations),
            "triples": triples.shape[1],
            "duplicates": len(self.heads) - triples.shape[1],
            "labels": len(self.label_spans) // 3,
            "shared_labels": _shared(np.frombuffer(self.named, np.uint64)),
            "unnamed_relations": sum(not relation_labels.get(relation) for relation in self.relations),
            "self_loops": int((triples[0] == triples[2]).sum()),
            "isolated": count - len(np.unique(triples[[0, 2]])),
        }
        seal(self.draft, META, meta)
        os.rename(self.draft, self.path)


def texts_by_id(texts: Texts) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(id, row) pairs of texts given as a mapping by id or as rows with `id`.

    Raises:
        WorkbenchError: a row has no `id`.
    """
    if isinstance(texts, Mapping):
        yield from texts.items()
        return
    for row in texts:
        if "id" not in row:
            raise WorkbenchError(f"a row of entity texts has no 'id'; found the keys {sorted(row)}")
        yield row["id"], row


def by_tail(tails: np.ndarray, entities: int) -> tuple[np.ndarray, np.ndarray]:
    """The order that sorts the triples by tail, and the offsets of each tail in it."""
    kind = np.int32 if len(tails) < 2**31 else np.int64
    return np.argsort(tails, kind="stable").astype(kind), _offsets(tails, entities)


def _distinct(heads: np.ndarray, relations: np.ndarray, tails: np.ndarray) -> np.ndarray:
    """[3, triples], the first of each, sorted by head and otherwise in the order they came."""
    columns = np.stack([heads, relations, tails])
    order = np.lexsort(columns[::-1])
    ranked = columns[:, order]
    repeated = (ranked[:, 1:] == ranked[:, :-1]).all(axis=0)
    keep = np.ones(len(heads), bool)
    keep[order[1:][repeated]] = False  # lexsort is stable: the first of equals came first
    columns = columns[:, keep]
    return np.ascontiguousarray(columns[:, np.argsort(columns[0], kind="stable")])


def _shared(labels: np.ndarray) -> int:
    """How many of the labels another entity has as well."""
    counts = np.unique(labels, return_counts=True)[1]
    return int(counts[counts > 1].sum())


def _offsets(sorted_or_not: np.ndarray, entities: int) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(np.bincount(sorted_or_not, minlength=entities))]).astype(np.int64)


def _spans(found: array[int], rows: int) -> np.ndarray:
    """[2, rows] from (row, start, end) of those that have text; the others have an empty span."""
    spans = np.zeros((2, rows), np.int64)
    row, start, end = np.frombuffer(found, np.int64).reshape(-1, 3).T
    spans[:, row] = start, end
    return spans


def _text(entity: str, row: Mapping[str, Any], name: str) -> str:
    if not isinstance(row[name], str):
        raise WorkbenchError(f"the {name} of entity {entity!r} is {row[name]!r}; it must be a string")
    return row[name]


def _texts(entity: str, row: Mapping[str, Any], name: str) -> list[str]:
    value = row[name]
    if not isinstance(value, list | tuple) or not all(isinstance(v, str) for v in value):
        raise WorkbenchError(f"the {name} of entity {entity!r} are {value!r}; they must be a list of strings")
    return list(value)
