"""The triples format `triples-csv`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipelines.readers.formats import make_reader
from pipelines.readers.reader import MalformedError
from tests.contracts.cases import ReaderCase
from tests.contracts.raw_inputs import lines
from workbench.core.errors import WorkbenchError

CASE = ReaderCase(
    excused={"streams": "the graph is gathered by its heads"},
    text=lines(lambda i: f"a{i},r,b", "head,relation,tail\n"),
    file="graph.csv",
    more=1,
)
TABLE = 'id,Subject,predicate,object\n1,"Oslo, city",capital of,"Norway ""north"""\n2,a 5" pipe,built from,clay\n'


def triples(samples: list[dict[str, Any]]) -> set[tuple[str, str, str]]:
    return {(s["id"], t["relation"], t["tail"]) for s in samples for t in s["triples"]}


def test_columns_are_found_by_their_usual_names_and_cells_may_be_quoted(tmp_path: Path, read: Any) -> None:
    (tmp_path / "g.csv").write_text(TABLE)
    assert triples(read("triples", tmp_path / "g.csv")) == {
        ("Oslo, city", "capital of", 'Norway "north"'),
        ('a 5" pipe', "built from", "clay"),
    }


def test_columns_are_named_or_counted(tmp_path: Path, read: Any) -> None:
    (tmp_path / "g.csv").write_text("x;y;z\na;r;b\n")
    asked = {"head_column": "x", "relation_column": "y", "tail_column": "z"}
    assert triples(read("triples", tmp_path / "g.csv", format="triples-csv", **asked)) == {("a", "r", "b")}
    assert len(triples(read("triples", tmp_path / "g.csv", format="triples-csv", header=False))) == 2
    with pytest.raises(WorkbenchError, match=r"none of the columns x, y, z is a head\. .*--option head_column=COLUMN"):
        read("triples", tmp_path / "g.csv", format="triples-csv")


def test_rows_that_are_no_triple_are_named(tmp_path: Path, read: Any) -> None:
    (tmp_path / "g.csv").write_text("head,relation,tail\na,r,b\nc,r\nd,,e\nf,r,g\n")
    with pytest.raises(WorkbenchError, match=r"g\.csv:3: a line of 2 columns"):
        read("triples", tmp_path / "g.csv")
    records = make_reader("triples", None, [tmp_path / "g.csv"], {}).records([tmp_path / "g.csv"])
    bad = [record.data.reason for record in records if isinstance(record.data, MalformedError)]
    assert bad == ["a line of 2 columns", "expected head, relation and tail"]
