"""`prepare joint-vectors`: words and entities in one space."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from kg.graph.store import GraphStore
from kg.vectors.joint_vectors import read_twice, stated
from kg.vectors.options import ImportOptions
from kg.vectors.pretrained_vectors import import_vectors
from tests.preparing import app
from workbench.core.errors import WorkbenchError

TEXTS = {"Oslo": "{} is a city by the sea in the north .", "Ann": "the painter {} paints old ships with oil ."}
ENTITIES = {"Q585": {"label": "Oslo"}, "New York_City": {"label": "Ann"}, "Q9": {"label": "Bergen"}}
IDS = {"Oslo": "Q585", "Ann": "New York_City"}


def test_entities_stand_among_the_words_around_them() -> None:
    spans = [[16, 22, "Q20", 1.0], [0, 4, "Q585", 1.0], [0, 4, "Q2", 0.5]]
    assert [*read_twice("Oslo, a city in Norway", spans)] == [
        ["oslo", "a", "city", "in", "norway"],
        ["ENTITY/Q585", "a", "city", "in", "ENTITY/Q20"],
    ]
    assert [*read_twice("No links", [])] == [["no", "links"]]


def test_of_candidates_those_that_people_marked(tmp_path: Path) -> None:
    pytest.importorskip("gensim")
    spans = [[0, 4, "Q2", 0.9, {"right": 0}], [0, 4, "Q585", 0.1, {"right": 1}], [8, 12, "Q3", 1.0]]
    rows = [{"id": n, "text": "Oslo, a city", "spans": spans} for n in range(9)]
    prepare("text", lines(tmp_path / "t.jsonl", rows), "-o", tmp_path / "texts", "--workers", 1)
    prepare("joint-vectors", tmp_path / "texts", "--dim", 2, "-o", tmp_path / "joint.txt")
    keys = {row.split()[0] for row in (tmp_path / "joint.txt").read_text().splitlines()[1:]}
    assert keys == {"oslo", "a", "city", "ENTITY/Q585"}


def test_a_triple_is_read_as_a_sentence(tmp_path: Path) -> None:
    texts = {"Q1": {"label": "New York"}}
    graph = GraphStore.build([("Q1", "P1", "Q2")], tmp_path / "graph", entity_texts=texts)
    assert [*stated(graph)] == [["ENTITY/Q1", "p1", "ENTITY/Q2"], ["ENTITY/Q1", "new", "york"]]
    words = GraphStore.build([("sea water", "is", "water")], tmp_path / "words")
    assert [*stated(words)][1:] == [["ENTITY/sea_water", "sea", "water"], ["ENTITY/water", "water"]]


def prepare(*command: Any) -> str:
    done = CliRunner().invoke(app, [*map(str, command)])
    if isinstance(done.exception, WorkbenchError):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


def lines(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    rows = []
    for name, text in TEXTS.items():
        start = text.index("{}")
        rows += [{"text": text.format(name), "spans": [[start, start + len(name), IDS[name], 1.0]]}] * 20
    source = lines(tmp_path / "texts.jsonl", [{**row, "id": i} for i, row in enumerate(rows)])
    prepare("text", source, "-o", tmp_path / "linked", "--workers", 1)
    return tmp_path / "linked"


def test_entities_are_near_the_words_around_their_mentions(linked: Path, tmp_path: Path) -> None:
    pytest.importorskip("gensim")
    command = ("joint-vectors", linked, "--dim", "8", "--epochs", "300")
    prepare(*command, "-o", tmp_path / "joint.txt")
    prepare(*command, "-o", tmp_path / "again.txt")
    assert (tmp_path / "again.txt").read_bytes() == (tmp_path / "joint.txt").read_bytes()
    head, *rows = (tmp_path / "joint.txt").read_text().splitlines()
    assert head == f"{len(rows)} 8"
    unit = {key: np.array(v, float) / np.linalg.norm(np.array(v, float)) for key, *v in map(str.split, rows)}
    near = {e: unit[f"ENTITY/{e}"] @ np.stack([unit["city"], unit["painter"]]).T for e in ("Q585", "New_York_City")}
    assert near["Q585"][0] > near["Q585"][1]
    assert near["New_York_City"][1] > near["New_York_City"][0]
    store = GraphStore.build([("Q585", "near", "Q9")], tmp_path / "graph", entity_texts=ENTITIES)
    taken = import_vectors(store, tmp_path / "joint.txt", tmp_path / "taken.safetensors", ImportOptions())
    assert sorted(taken.ids) == ["New York_City", "Q585"]
    found = taken.vectors[taken.ids.index("New York_City")].numpy()
    np.testing.assert_allclose(found / np.linalg.norm(found), unit["ENTITY/New_York_City"], atol=1e-6)
    prepare(*command, "--graph", tmp_path / "graph", "--min-count", 1, "-o", tmp_path / "more.txt")
    assert "\nENTITY/Q9 " in (tmp_path / "more.txt").read_text(), "an entity of the graph alone"


def test_what_cannot_be_trained_on(linked: Path, tmp_path: Path) -> None:
    pytest.importorskip("gensim")
    with pytest.raises(WorkbenchError, match="no entity occurs 30 times"):
        prepare("joint-vectors", linked, "--min-count", 30, "-o", tmp_path / "j.txt")
    with pytest.raises(WorkbenchError, match=r"written to a \.txt file"):
        prepare("joint-vectors", linked, "-o", tmp_path / "j.safetensors")
    prepare("text", lines(tmp_path / "plain.jsonl", [{"text": "x"}]), "-o", tmp_path / "plain", "--workers", 1)
    with pytest.raises(WorkbenchError, match="has no spans"):
        prepare("joint-vectors", tmp_path / "plain", "-o", tmp_path / "j.txt")
    assert not list(tmp_path.glob("j.*"))
