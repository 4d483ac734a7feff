"""The triples format `pykeen`."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from pipelines.readers.formats import detect
from pipelines.readers.reader import MalformedError
from tests.contracts.cases import ReaderCase


def alongside(records: int) -> dict[str, bytes]:
    names = "".join(f"{i}\te{i}\n" for i in range(records + 1))
    return {
        "entity_to_id.tsv.gz": gzip.compress(f"id\tlabel\n{names}".encode()),
        "relation_to_id.tsv.gz": gzip.compress(b"id\tlabel\n0\tr\n"),
    }


def numbered(records: int) -> str:
    rows = "".join(f"{i}\t0\t{records}\n" for i in range(records))
    return f"head\trelation\ttail\n{rows}"


CASE = ReaderCase(
    excused={"streams": "the graph is gathered by its heads"},
    text=numbered,
    file="numeric_triples.tsv",
    alongside=alongside,
    more=1,
    folder=True,
)


def test_what_pykeen_writes(tmp_path, read):
    from pykeen.triples import TriplesFactory

    rows = np.array([["oslo", "capital of", "norway"], ["norway", "borders", "sweden"], ["oslo", "in", "norway"]])
    TriplesFactory.from_labeled_triples(rows).to_path_binary(tmp_path / "result" / "training_triples")
    for folder in (tmp_path / "result" / "training_triples", tmp_path / "result"):
        assert detect("triples", [folder]) == "pykeen"
        found = [(r["id"], t["relation"], t["tail"]) for r in read("triples", folder) for t in r["triples"]]
        assert sorted(found) == sorted(map(tuple, rows.tolist()))


def test_numbers_without_a_label(tmp_path, read):
    for name, content in {**alongside(1), "numeric_triples.tsv": numbered(3).encode()}.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(MalformedError, match=r"numeric_triples\.tsv:2: a number that no label has .*'3'"):
        read("triples", tmp_path, format="pykeen")
