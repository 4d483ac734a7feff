"""The triples format `triples-tsv`."""

from __future__ import annotations

import pytest

from tests.contracts.cases import ReaderCase
from tests.contracts.raw_inputs import lines

CASE = ReaderCase(
    excused={"streams": "the graph is gathered by its heads"},
    text=lines(lambda i: f"a{i}\tr\tb"),
    file="graph.tsv",
    more=1,
)


@pytest.mark.parametrize(
    "header", ["head\trelation\ttail", "Subject\tPredicate\tObject", "#h\tr\tt", ":START_ID\t:TYPE\t:END_ID"]
)
def test_a_first_line_that_names_the_columns_is_no_triple(tmp_path, read, caplog, header):
    (tmp_path / "g.tsv").write_text(f"{header}\noslo\tcapital of\tnorway\nhead\trelation\ttail\n")
    with caplog.at_level("INFO"):
        found = {sample["id"]: len(sample["triples"]) for sample in read("triples", tmp_path / "g.tsv")}
    assert found == {"oslo": 1, "norway": 0, "head": 1, "tail": 0}, "the second line of this kind is a triple"
    assert "g.tsv:1" in caplog.text
    assert "is read as a header" in caplog.text


def test_names_that_only_look_like_a_header_stay(tmp_path, read):
    (tmp_path / "g.tsv").write_text("head\tpart of\tbody\ntail\tpart of\tbody\n")
    assert {sample["id"] for sample in read("triples", tmp_path / "g.tsv")} == {"head", "body", "tail"}
