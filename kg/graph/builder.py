"""Writing a knowledge graph: triples and texts as they come -> the arrays of `kg.graph.store`.

Labels with look-alike letters (Latin a, Cyrillic a) are not confused.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import unicodedata
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.lib.format import open_memmap

from kg.graph.links import TripleLinks, blocks, ranges
from kg.graph.space import fingerprint, namespace_of
from kg.graph.spill import BLOCK, Spill
from kg.graph.strings import StringWriter, digest64, open_strings, save_strings
from workbench.core.errors import WorkbenchError
from workbench.core.files.checksums import seal
from workbench.core.files.drafts import draft_folder

META = "graph.json"
Texts = Mapping[str, Mapping[str, Any]] | Iterable[Mapping[str, Any]]


class GraphBuilder:
    """Collects a graph in a temporary folder next to `path`; `finish` moves it to `path`.

    Triples, ids and texts lie on disk; memory is some 100 bytes an entity in the end.

    A context manager: when its block fails, or ends without `finish`, nothing is left behind.
    """

    def __init__(self, path: Path) -> None:
        if path.exists():
            raise WorkbenchError(f"{path} exists already; remove it, or name another folder for the graph")
        self.path = path
        self.draft = draft_folder(path)
        self.links = TripleLinks(self.draft)
        self.labels = StringWriter(self.draft, "labels")
        self.texts = StringWriter(self.draft, "texts")
        self.label_spans, self.text_spans = array("q"), array("q")  # row, start, end of each
        self.described, self.known = bytearray(), bytearray()  # by row, as far as one is set
        self.tail_labels = TailLabels(self.draft)
        self.named = array("Q")  # hashes of the labels
        self.counts = Counter[str]()

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
                f"triple {len(self.links) + 1} is {triple!r}; a triple is three non-empty strings: head, relation, tail"
            )
        self.links.add(*triple)

    def add_texts(self, entity: str, row: Mapping[str, Any]) -> None:
        """Add what is written about an entity: label, aliases, description, types, those that `row` has.

        A label that repeats the id is none, nor is white space.

        Raises:
            WorkbenchError: the id is not a non-empty string, the entity is described already, or a text is no text.
        """
        if not isinstance(entity, str) or not entity:
            raise WorkbenchError(f"an entity's texts have the id {entity!r}; an id is a non-empty string")
        label = None
        if row.get("label") is not None:
            given = _text(entity, row, "label").strip()
            self.counts["empty"] += not given
            label = self._label(row["label"]) if given not in ("", entity) else None
        more: dict[str, Any] = {name: _texts(entity, row, name) for name in ("aliases", "types") if row.get(name)}
        if row.get("description"):
            more["description"] = _text(entity, row, "description")
        self.counts.update(more.keys())
        text = self.texts.write(json.dumps(more, ensure_ascii=False)) if more else None

        def describe(number: int) -> None:
            if _is_set(self.described, number):
                raise WorkbenchError(f"the entity {entity!r} is described twice; keep one row for each id")
            _set(self.described, number)
            if label is not None or more.keys() - {"types"}:
                _set(self.known, number)
            for spans, span in ((self.label_spans, label), (self.text_spans, text)):
                if span is not None:
                    spans.extend((number, *span))

        self.links.ask(entity, describe)

    def add_tail_label(self, entity: str, label: str) -> None:
        """Add the label of an entity that counts unless `add_texts` describes it; the first one that is given."""
        if label != entity:
            self.links.ask(entity, lambda number: self.tail_labels.add(number, label))

    def finish(self, relation_labels: Mapping[str, str], *, words: bool = False, namespace: str = "") -> None:
        """Write the arrays and move the graph to its place; `words` notes that ids are words, `namespace` whose."""
        self.links.flush()
        for number, label in self.tail_labels:
            if not _is_set(self.described, number):
                self.label_spans.extend((number, *self._label(label)))
                _set(self.known, number)
        names, relations = self.links.entities.names(), self.links.relations
        count, given = len(names), len(self.links)
        triples = self._save_triples()
        out_offsets, in_offsets = (_offsets(triples[column], count) for column in (0, 2))
        np.save(self.draft / "out_offsets.npy", out_offsets)
        np.save(self.draft / "in_offsets.npy", in_offsets)
        shape = triples.shape[1:]
        in_order = open_memmap(self.draft / "in_order.npy", "w+", _place_type(*shape), shape)
        _sort_by(triples[2], in_offsets, in_order)
        save_strings(self.draft, "entity_ids", names, index=True)
        save_strings(self.draft, "relation_ids", relations, index=True)
        save_strings(self.draft, "relation_labels", (relation_labels.get(r) or "" for r in relations))
        self.labels.finish(_spans(self.label_spans, count))
        self.texts.finish(_spans(self.text_spans, count))
        meta = {
            "entities": count,
            "relations": len(relations),
            "triples": triples.shape[1],
            "duplicates": given - triples.shape[1],
            "labels": len(self.label_spans) // 3,
            "shared_labels": _shared(np.frombuffer(self.named, np.uint64)),
            "mixed_labels": self.counts["mixed"],
            "empty_labels": self.counts["empty"],
            "unknown": count - sum(self.known),
            "descriptions": self.counts["description"],
            "typed": self.counts["types"],
            "unnamed_relations": sum(not relation_labels.get(relation) for relation in relations),
            "self_loops": sum(int((h == t).sum()) for h, t in zip(blocks(triples[0]), blocks(triples[2]), strict=True)),
            "isolated": int((np.diff(out_offsets) + np.diff(in_offsets) == 0).sum()),
        }
        labels = open_strings(self.draft, "labels")
        meta["space"] = {
            "namespace": namespace or namespace_of(names, words or not meta["labels"]),
            "entities": fingerprint(zip(names, labels, strict=True)),
        }
        seal(self.draft, META, {**meta, "words": True} if words else meta)
        os.rename(self.draft, self.path)

    def _label(self, label: str) -> tuple[int, int]:
        self.named.append(digest64(label))
        self.counts["mixed"] += mixes_scripts(label)
        return self.labels.write(label)

    def _save_triples(self) -> np.ndarray:
        """Write `triples.npy`; returns it memory-mapped."""
        kept = Spill(np.int32, 3, self.draft)
        for part in self.links.parts():
            kept.extend(part.rows)
        rows = kept.rows()
        triples = open_memmap(self.draft / "triples.npy", "w+", np.int32, (3, len(rows)))
        for number, block in enumerate(blocks(rows)):
            triples[:, number * BLOCK : number * BLOCK + len(block)] = block.T
        return triples


class TailLabels:
    """Labels by the number of an entity, on disk; of each entity the first."""

    def __init__(self, folder: Path) -> None:
        self._blob = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  # it lives as long as this
        self._rows = array("q")  # row, start, end of each
        self._has = bytearray()

    def add(self, number: int, label: str) -> None:
        if not _is_set(self._has, number):
            _set(self._has, number)
            start = self._blob.tell()
            self._rows.extend((number, start, start + self._blob.write(label.encode())))

    def __iter__(self) -> Iterator[tuple[int, str]]:
        self._blob.seek(0)
        for place in range(0, len(self._rows), 3):
            number, start, end = self._rows[place : place + 3]
            yield number, self._blob.read(end - start).decode()


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
    offsets = _offsets(tails, entities)
    order = np.empty(len(tails), _place_type(len(tails)))
    _sort_by(tails, offsets, order)
    return order, offsets


def _place_type(triples: int) -> type[np.generic]:
    return np.int32 if triples < 2**31 else np.int64


def _sort_by(values: np.ndarray, offsets: np.ndarray, order: np.ndarray) -> None:
    """Fill in the order that sorts values, whose offsets in it are given, some of them at a time."""
    for low, high in pairwise(ranges(np.diff(offsets)).tolist()):
        places = [
            number * BLOCK + np.flatnonzero((block >= low) & (block < high))
            for number, block in enumerate(blocks(values))
        ]
        found = np.concatenate([np.empty(0, np.int64), *places])
        order[offsets[low] : offsets[high]] = found[np.argsort(values[found], kind="stable")]


def _shared(labels: np.ndarray) -> int:
    """The number of labels that several entities have."""
    counts = np.unique(labels, return_counts=True)[1]
    return int(counts[counts > 1].sum())


def _offsets(values: np.ndarray, entities: int) -> np.ndarray:
    counts = np.zeros(entities, np.int64)
    for block in blocks(values):
        counts += np.bincount(block, minlength=entities)
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


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


def _is_set(flags: bytearray, number: int) -> bool:
    return number < len(flags) and flags[number] == 1


def _set(flags: bytearray, number: int) -> None:
    if number >= len(flags):
        flags.extend(bytes(number + 1 - len(flags)))
    flags[number] = 1


ALIKE = frozenset({"LATIN", "CYRILLIC", "GREEK"})


def mixes_scripts(label: str) -> bool:
    """Whether a word has letters of several of these scripts, as one that was typed or recognised wrongly has.

    Its letters may look like those of another label; neither is found where the other is meant.
    """
    if label.isascii():
        return False
    words = ({unicodedata.name(c, "").partition(" ")[0] for c in word if c.isalpha()} for word in label.split())
    return any(len(scripts & ALIKE) > 1 for scripts in words)
