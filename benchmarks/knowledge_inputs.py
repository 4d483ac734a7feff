"""What the systems of `benchmarks.knowledge_results` read: a graph, linked texts, three labelled sets, made small.

Labels of CoDEx-M's entities are those of CoDEx-S, and for others the text by which the linked articles name them most
often. All texts are linked by one linker that knows these names; links that the data have (the articles', FewRel's
entities) stay as they are.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.knowledge_extras import prepare_extras
from kg.graph.store import GraphStore
from workbench.corpora.corpus import Corpus

Row = dict[str, Any]
Call = Callable[..., None]
TRAINED, TESTED = 640, 500
GENERAL = {"person", "group", "organization", "location", "entity", "time", "object", "event", "place"}


@dataclass(frozen=True)
class Labelled:
    """A labelled set: where its rows are, those to train on and those to test on."""

    trained: str
    tested: str


SETS = {
    "fewrel": Labelled("fewrel/wiki_train.jsonl", "fewrel/wiki_train.jsonl"),
    "ufet": Labelled("ufet/train.jsonl", "ufet/dev.jsonl"),
    "semeval": Labelled("semeval2010_task8/train.jsonl", "semeval2010_task8/train.jsonl"),
}


def prepare(data: Path, corpora: Path, call: Call) -> None:
    """Everything that is read, by the ordinary commands; what is there already is not made again."""
    raw = corpora / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    codex = data / "codex"

    def made(name: str, *command: str | Path) -> str:
        if not (corpora / name).exists():
            call("prepare", *map(str, command), "--output", str(corpora / name))
        return str(corpora / name)

    texts: tuple[str | Path, ...] = ("--entities", codex / "entity_text_codex-s.jsonl")
    texts += ("--types", codex / "entity_types.jsonl", "--relations", codex / "relations.jsonl")
    described = made("described", "triples", codex / "codex-s", *texts)
    named = write_names(data, described, raw / "names.jsonl")
    graph = made("graph", "triples", codex / "codex-m", "--entities", named, *texts, "--option", "described=false")
    gold = made("wiki-gold", "text", data / "wiki_linked", "--workers", "1")
    linker = made("linker", "linker", graph, "--anchors", gold)
    link = ("--linker", linker, "--keep", "--workers", "1")
    made("wiki-linked", "link", gold, *link)
    made("entities.safetensors", "vectors", graph, "--epochs", "30")
    known = set(GraphStore.open(graph).ids)
    for name, chosen in SETS.items():
        for part, rows in zip(("train", "test"), parts(data, chosen, known), strict=True):
            path = _written(raw / f"{name}-{part}.jsonl", rows)
            plain = made(f"raw/{name}-{part}", "text", path, "--workers", "1")
            made(f"{name}-{part}", "link", plain, *link)
    prepare_extras(data, corpora, [f"{name}-{part}" for name in SETS for part in ("train", "test")], made)


def write_names(data: Path, described: str, output: Path) -> Path:
    """Labels of entities that the graph of described ones does not hold, as the linked articles name them."""
    known = set(GraphStore.open(described).ids)
    said: dict[str, Counter[str]] = {}
    for document in _lines(data / "wiki_linked/docs_train.jsonl"):
        for sentence in document["sentences"]:
            for start, end, entity in sentence["links"]:
                text = " ".join(sentence["tokens"][start:end]).replace(" ##", "")
                if entity not in known and not text.startswith("##"):
                    said.setdefault(entity, Counter())[text] += 1
    rows = ({"id": entity, "label": texts.most_common(1)[0][0]} for entity, texts in sorted(said.items()))
    return _written(output, rows)


def parts(data: Path, labelled: Labelled, known: set[str]) -> tuple[list[Row], list[Row]]:
    """The rows to train on and those to test on, evenly spaced; none in both, no class to test that is not trained.

    Of typed mentions those that have one of the nine general types; of relations between entities whose ids are given
    (FewRel) those of which the graph knows one, as knowledge has nothing to say of the others.
    """
    trained, tested = (
        [row for row in _lines(data / path) if _is_reported(row, known)] for path in (labelled.trained, labelled.tested)
    )
    if labelled.trained == labelled.tested:
        trained, tested = trained[::2], tested[1::2]
    trained = spaced(trained, TRAINED)
    known = {row.get("relation") for row in trained}
    return trained, spaced([row for row in tested if row.get("relation") in known], TESTED)


def _is_reported(row: Row, known: set[str]) -> bool:
    """Whether a general type, or an entity of the graph."""
    if "y_str" in row:
        return bool(GENERAL & set(row["y_str"]))
    ids = {row[role]["id"] for role in ("head", "tail") if "id" in (row.get(role) or {})}
    return not ids or bool(ids & known)


def spaced(rows: list[Row], number: int) -> list[Row]:
    """So many rows, evenly spaced; all where there are fewer."""
    number = min(number, len(rows))
    return [rows[i * len(rows) // number] for i in range(number)]


def coverage(corpora: Path) -> dict[str, dict[str, float]]:
    """By labelled set: the shares of marked mentions that are linked to the graph, and of texts with any link to it."""
    graph = GraphStore.open(str(corpora / "graph"))
    found = {}
    for name in SETS:
        for part in ("train", "test"):
            records = list(Corpus.open(str(corpora / f"{name}-{part}")))
            links = [{(s[0], s[1]) for s in r.get("spans", ()) if graph.ids.find(s[2]) >= 0} for r in records]
            marked = [any(m == link for link in of) for r, of in zip(records, links, strict=True) for m in marks(r)]
            texts = sum(map(bool, links)) / len(records)
            found[f"{name}-{part}"] = {"mentions": sum(marked) / len(marked), "texts": texts}
    return found


def marks(record: Row) -> Iterator[tuple[int, int]]:
    """The ends of a record's marked mentions."""
    found = [record["mention"]] if "mention" in record else record["marks"]
    yield from ((int(each[0]), int(each[1])) for each in found)


def _written(path: Path, rows: Any) -> Path:
    if not path.exists():
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def _lines(path: Path) -> Iterator[Row]:
    with path.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)
