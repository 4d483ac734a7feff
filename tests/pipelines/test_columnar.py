"""Parquet and Arrow as rows, written in the layouts that `datasets` and its hub publish."""

from __future__ import annotations

import datetime
import io
import json
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pipelines.readers.formats import detect
from pipelines.sources.columnar import rows, split_of
from tests.pipelines.test_commands import prepare
from workbench.core.errors import WorkbenchError


def parquet(rows: Sequence[dict[str, Any]], schema: Any = None, group: int = 2) -> bytes:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    buffer = io.BytesIO()
    write_table(pyarrow.Table.from_pylist(list(rows), schema), buffer, row_group_size=group)
    return buffer.getvalue()


def arrow_stream(rows: Sequence[dict[str, Any]], named: bool = False) -> bytes:
    pyarrow, ipc = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.ipc")
    buffer, table = io.BytesIO(), pyarrow.Table.from_pylist(list(rows))
    made = ipc.new_file if named else ipc.new_stream
    with made(buffer, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    return buffer.getvalue()


def saved_to_disk(folder: Path, splits: dict[str, Sequence[dict[str, Any]]]) -> None:
    """As `datasets.DatasetDict.save_to_disk` lays a data set out, each split in two shards."""
    for name, rows_of_split in splits.items():
        place = folder / name
        place.mkdir(parents=True)
        half = len(rows_of_split) // 2
        parts = (rows_of_split[:half], rows_of_split[half:])
        shards = {f"data-0000{i}-of-00002.arrow": part for i, part in enumerate(parts)}
        for file, part in shards.items():
            (place / file).write_bytes(arrow_stream(part))
        state = {"_data_files": [{"filename": file} for file in shards], "_fingerprint": "0a", "_split": name}
        (place / "state.json").write_text(json.dumps(state, indent=2))
        (place / "dataset_info.json").write_text(json.dumps({"features": {}}, indent=2))
    (folder / "dataset_dict.json").write_text(json.dumps({"splits": [*splits]}))


TEXTS = [{"text": f"text {i}", "label": "good", "when": datetime.datetime(2026, 1, 1)} for i in range(5)]


def test_texts_in_every_container_are_the_same(tmp_path: Path, read: Any) -> None:
    (tmp_path / "a.parquet").write_bytes(parquet(TEXTS))
    (tmp_path / "b.arrow").write_bytes(arrow_stream(TEXTS))
    (tmp_path / "c.feather").write_bytes(arrow_stream(TEXTS, named=True))
    for name in ("a.parquet", "b.arrow", "c.feather"):
        assert detect("text", [tmp_path / name]) == "json-lines"
        found = read("text", tmp_path / name)
        assert [sample["text"] for sample in found] == [f"text {i}" for i in range(5)]
        assert found[0]["labels"] == {"label": "good"}
        assert found[0]["meta"] == {"source": name, "line": 1, "when": "2026-01-01T00:00:00"}


def test_a_saved_folder_of_texts(tmp_path: Path, stored: Any) -> None:
    saved_to_disk(tmp_path / "saved", {"train": TEXTS[:4], "test": TEXTS[4:]})
    (tmp_path / "saved" / "train" / "cache-1.arrow").write_bytes(arrow_stream([{"text": "a cache"}]))
    prepare("text", tmp_path / "saved", "-o", tmp_path / "c", "--workers", 1, "--own-split", "test")
    assert [s["text"] for s in stored(tmp_path / "c")] == [f"text {i}" for i in range(4)]
    assert [s["meta"]["split"] for s in stored(tmp_path / "c-test")] == ["test"]
    left = json.loads((tmp_path / "c" / "corpus.json").read_bytes())["provenance"]["passed_over"]
    assert left["about the data"]["files"] == 5
    assert left["cached"] == {"files": 1, "first": ["train/cache-1.arrow"]}
    (tmp_path / "saved" / "train" / "data-00000-of-00002.arrow").unlink()
    with pytest.raises(WorkbenchError, match=r"lacks data-00000-of-00002\.arrow, which its state\.json lists"):
        prepare("text", tmp_path / "saved", "-o", tmp_path / "d", "--workers", 1)


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("data/train-00000-of-00002.parquet", "train"),
        ("data/validation_matched-00000-of-00001.parquet", "validation_matched"),
        ("test.parquet", "test"),
        ("valid/0000.parquet", "valid"),
        ("wiki.parquet", None),
        ("data-00000-of-00001.arrow", None),
    ],
)
def test_splits_of_names(name: str, split: str | None) -> None:
    assert split_of(Path(name)) == split


def test_triples_of_a_table(tmp_path: Path, read: Any) -> None:
    table = [{"head": "oslo", "relation": "capital of", "tail": "norway"}, {"head": "a", "relation": 3, "tail": "b"}]
    for row in table:
        row["relation"] = str(row["relation"])
    (tmp_path / "g.parquet").write_bytes(parquet(table))
    (tmp_path / "g.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table))
    for name in ("g.parquet", "g.jsonl"):
        found = {(s["id"], t["relation"], t["tail"]) for s in read("triples", tmp_path / name) for t in s["triples"]}
        assert found == {("oslo", "capital of", "norway"), ("a", "3", "b")}


def test_what_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = parquet(TEXTS)
    for name, data in {"cut.parquet": whole[:-20], "cut.arrow": arrow_stream(TEXTS)[:40], "empty.parquet": b""}.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(WorkbenchError, match=name.replace(".", r"\.")):
            list(rows(tmp_path / name))
    (tmp_path / "a.parquet").write_bytes(whole)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(WorkbenchError, match=r"a\.parquet: Parquet and Arrow need .*pip install .*\[text\]"):
        detect("text", [tmp_path / "a.parquet"])


def test_indices_are_refused(tmp_path: Path) -> None:
    saved_to_disk(tmp_path, {"train": TEXTS})
    place = tmp_path / "train" / "state.json"
    indices = {"_indices_data_files": [{"filename": "i.arrow"}]}
    place.write_text(json.dumps(json.loads(place.read_text()) | indices))
    with pytest.raises(WorkbenchError, match="flatten_indices"):
        detect("text", [tmp_path])


def test_bytes_next_to_a_text_are_named(tmp_path: Path, read: Any, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "a.parquet").write_bytes(parquet([{"text": "x", "raw": b"\x00", "no": float("nan")}] * 3))
    assert read("text", tmp_path / "a.parquet")[0]["meta"] == {"source": "a.parquet", "line": 1, "no": None}
    assert caplog.text.count("the columns raw hold bytes") == 1


MEASURED = """
import resource, sys
from pathlib import Path
from pipelines.sources.columnar import rows
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
count = sum(1 for _ in rows(Path(sys.argv[1])))
print(count, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_one_row_group_of_a_large_file_is_not_held(tmp_path: Path) -> None:
    """32 MB of noise in one row group: what is read of it at once is a fraction."""
    noise = random.Random(0)
    table = [{"image": noise.randbytes(32 << 10), "text": str(i)} for i in range(1000)]
    (tmp_path / "a.parquet").write_bytes(parquet(table, group=1000))
    command = [sys.executable, "-c", MEASURED, str(tmp_path / "a.parquet")]
    count, grown = map(int, subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())
    assert count == 1000
    assert grown < 100 << 10  # kB; pyarrow itself takes some 60 MB


def test_text_that_is_not_utf8_is_reported_with_the_file(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    offsets = pyarrow.py_buffer(b"\0\0\0\0\2\0\0\0")
    bad = pyarrow.StringArray.from_buffers(1, offsets, pyarrow.py_buffer(b"\xff\xfa"))
    write_table(pyarrow.table({"text": bad}), tmp_path / "a.parquet")
    with pytest.raises(WorkbenchError, match=r"a\.parquet cannot be read as parquet: .*utf-8"):
        list(rows(tmp_path / "a.parquet"))


def test_answers_that_are_numbers_are_refused_by_row(tmp_path: Path) -> None:
    photograph = {"bytes": b"x", "path": "a.png"}
    (tmp_path / "q.parquet").write_bytes(parquet([{"image": photograph, "question": "how many?", "answer": 2}]))
    with pytest.raises(WorkbenchError, match=r"q\.parquet.*answers"):
        prepare("image-text", tmp_path / "q.parquet", "-o", tmp_path / "c", "--workers", 1)


@pytest.mark.parametrize("kind", ["List", "Sequence", "bare"])
def test_names_of_classes_in_lists(tmp_path: Path, read: Any, kind: str) -> None:
    """CoNLL 2003 as the hub has it: words, and the numbers of their tags, whose names are in the schema."""
    pyarrow = pytest.importorskip("pyarrow")
    names = {"names": ["O", "B-LOC", "I-LOC"], "_type": "ClassLabel"}
    features = {"ner_tags": [names] if kind == "bare" else {"feature": names, "_type": kind}, "nested": {"kind": names}}
    rows = [{"id": "0", "tokens": ["New", "York", "is", "big"], "ner_tags": [1, 2, 0, 0], "nested": {"kind": 1}}]
    about = json.dumps({"info": {"features": features}})
    schema = pyarrow.Table.from_pylist(rows).schema.with_metadata({"huggingface": about})
    (tmp_path / "n.parquet").write_bytes(parquet(rows, schema))
    (sample,) = read("text", tmp_path / "n.parquet")
    assert sample["text"] == "New York is big"
    assert sample["tags"] == [[0, 3, "B-LOC"], [4, 8, "I-LOC"], [9, 11, "O"], [12, 15, "O"]]
    assert sample["meta"]["nested"] == {"kind": "B-LOC"}


def test_numbers_of_tags_without_names_are_left_to_meta(tmp_path: Path, read: Any) -> None:
    (tmp_path / "n.parquet").write_bytes(parquet([{"tokens": ["New", "York"], "ner_tags": [1, 2]}]))
    (sample,) = read("text", tmp_path / "n.parquet")
    assert (sample["text"], sample["meta"]["ner_tags"], "tags" in sample) == ("New York", [1, 2], False)
