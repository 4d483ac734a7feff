"""`prepare triples --strict`: what of the triples and of their texts is a fault, and what is only counted."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kg.graph.faults import lacks
from kg.graph.store import GraphStore
from tests.preparing import app
from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus

Prepare = Callable[..., Path]
WHOLE = [{"id": name, "label": f"town {name}", "description": "a town"} for name in ("a", "b", "c")]


@pytest.fixture
def prepare(tmp_path: Path) -> Prepare:
    """Of a -r-> b -r-> c with texts, under --strict."""
    number = iter(range(9))

    def run(entities: list[dict[str, Any]], *more: str, relations: list[dict[str, Any]] | None = None) -> Path:
        out = tmp_path / f"out{next(number)}"
        (tmp_path / "g.tsv").write_text("a\tr\tb\nb\tr\tc\n")
        reported = ["triples", str(tmp_path / "g.tsv"), "--workers", "1", "-o", str(out), "--strict"]
        for name, rows in {"entities": entities, "relations": relations or []}.items():
            if rows:
                (tmp_path / name).with_suffix(".jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
                reported += [f"--{name}", str(tmp_path / f"{name}.jsonl")]
        app([*reported, *more], standalone_mode=False)
        return out

    return run


@pytest.mark.parametrize(
    ("entities", "fault"),
    [
        (WHOLE[:2], "entities that the texts don't know: 1"),
        ([*WHOLE[:2], {"id": "c", "types": ["town"]}], "entities that the texts don't know: 1"),
        ([*WHOLE[:2], {**WHOLE[2], "label": " "}], "a label, as it is empty: 1"),
        ([{"id": row["id"], "label": row["label"]} for row in WHOLE], "texts without any description or type: 3"),
    ],
)
def test_faults_of_the_texts_stop(prepare: Prepare, entities: list[dict[str, Any]], fault: str) -> None:
    with pytest.raises(WorkbenchError, match=rf"--strict allows no faults: [^.]*{re.escape(fault)}\. Fix"):
        prepare(entities)


def test_an_empty_label_of_records_stops_too(tmp_path: Path) -> None:
    rows = [{"id": "a", "label": "", "description": "x", "triples": [{"relation": "r", "tail": "a2"}]}]
    (tmp_path / "g.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(WorkbenchError, match="labels that are empty: 1"):
        app(["triples", str(tmp_path / "g.jsonl"), "-o", str(tmp_path / "o"), "--strict"], standalone_mode=False)


def test_a_graph_without_texts_is_no_fault(prepare: Prepare) -> None:
    store = GraphStore.open(prepare([]))
    assert lacks(store) == {
        "entities without a label": 3,
        "entities without a description": 3,
        "entities without types": 3,
        "relations without a label": 1,
    }


def test_texts_of_more_than_the_graph_are_counted_alone(prepare: Prepare) -> None:
    """Files of texts serve several graphs."""
    more = [*WHOLE, {"id": "z", "label": "town z"}]
    out = prepare(more, relations=[{"id": "r", "label": "near"}, {"id": "s", "label": "far"}])
    assert Corpus.open(out).manifest.dropped == {"TriplesTsv: the text of a relation that is in no triple": 1}
    assert lacks(GraphStore.open(out))["entities in no triple"] == 1
    without = prepare(more, "--option", "described=false")
    assert Corpus.open(without).manifest.dropped == {"TriplesTsv: described, but in no triple": 1}


def test_a_relation_that_is_called_by_its_id_has_a_label(prepare: Prepare) -> None:
    assert "relations without a label" in lacks(GraphStore.open(prepare(WHOLE)))
    named = GraphStore.open(prepare(WHOLE, relations=[{"id": "r", "label": "r"}]))
    assert "relations without a label" not in lacks(named)
    assert named.relation_label("r") == "r"
