"""The triples format `openke`."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.readers.reader import MalformedError
from tests.contracts.cases import ReaderCase
from workbench.core.errors import WorkbenchError

ENTITIES = "4\n/m/a\t0\n/m/b\t1\n/m/c\t2\n/m/d\t3\n"
RELATIONS = "2\n/r/x\t0\n/r/y\t1\n"


def numbered(records: int) -> str:
    return f"{records}\n" + "".join(f"{i} {records} 0\n" for i in range(records))


def alongside(records: int) -> dict[str, bytes]:
    names = "".join(f"e{i}\t{i}\n" for i in range(records + 1))
    return {"entity2id.txt": f"{records + 1}\n{names}".encode(), "relation2id.txt": b"1\nr\t0\n"}


CASE = ReaderCase(
    excused={"streams": "the graph is gathered by its heads"},
    text=numbered,
    file="train2id.txt",
    alongside=alongside,
    more=1,
    folder=True,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "FB"
    made.mkdir()
    (made / "entity2id.txt").write_text(ENTITIES)
    (made / "relation2id.txt").write_text(RELATIONS)
    (made / "train2id.txt").write_text("2\n0 1 1\n1\t2\t0\n")
    (made / "valid2id.txt").write_text("1\n3 0 1\n")
    return made


def test_the_relation_comes_last_and_all_entities_are_kept(folder, read):
    samples = {s["id"]: [(t["relation"], t["tail"]) for t in s["triples"]] for s in read("triples", folder)}
    assert samples == {"/m/a": [("/r/y", "/m/b")], "/m/b": [("/r/x", "/m/c")], "/m/c": [], "/m/d": []}
    (other,) = [s for s in read("triples", folder, part="valid") if s["triples"]]
    assert (other["id"], other["triples"][0]["relation"]) == ("/m/d", "/r/y")
    with pytest.raises(WorkbenchError, match=r"no test2id\.txt; allowed for part: train, valid"):
        read("triples", folder, part="test")


def test_names_of_a_file_stand_over_the_ids(folder, tmp_path, read):
    (tmp_path / "mid2name.tsv").write_text("/m/a\tAnn\n")
    (tmp_path / "mid2description.txt").write_text('/m/a\t"a woman"@en\n')
    texts = [str(tmp_path / "mid2name.tsv"), str(tmp_path / "mid2description.txt")]
    first, second, *_ = read("triples", folder, entities=texts)
    assert (first["label"], first["description"], second["label"]) == ("Ann", "a woman", "/m/b")


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ("1\n0 9 0\n", "an entity that entity2id.txt does not number"),
        ("1\n0 1 9\n", "a relation that relation2id.txt does not number"),
        ("1\n0 1\n", "expected head, tail and relation"),
        ("5\n0 1 0\n", "the number of rows differs from the first line"),
        ("0 1 0\n", "the first line must be the number of rows"),
    ],
)
def test_bad_rows(folder, read, rows, reason):
    (folder / "train2id.txt").write_text(rows)
    with pytest.raises(MalformedError, match=reason):
        read("triples", folder)
