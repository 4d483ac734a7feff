"""Chunks travel as places in files: a worker that begins again there reads the same records."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipelines.preparing.chunks import Limits, cut_chunks
from pipelines.readers.formats import make_reader
from pipelines.readers.reader import RawReader
from workbench.core.errors import WorkbenchError

LINES = "first line\n\n\n  second\r\nstill the second\n \nthird\n= heading =\nfourth\n\n\nfifth, without an end"


def plain_text(folder: Path) -> list[Path]:
    (folder / "b.txt").write_bytes(b"\xef\xbb\xbf" + LINES.encode())
    (folder / "c.md").write_text(LINES * 3)
    return [folder / "b.txt", folder / "c.md", folder / "b.txt"]


def json_lines(folder: Path) -> list[Path]:
    rows = "".join(f'{{"text": "row {i} \u00e9"}}\n' + "\n" * (i % 3) for i in range(20))
    for name in ("one.jsonl", "two.jsonl"):
        (folder / name).write_text(rows, "utf-8")
    return [folder]


def mixed(folder: Path) -> list[Path]:
    return [*plain_text(folder), *json_lines(folder)]


def parquet(folder: Path, rows: int = 4) -> list[Path]:
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = arrow.table({"text": [f"row {i}" for i in range(23)], "n": list(range(23))})
    parquet.write_table(table, folder / "rows.parquet", row_group_size=rows)
    return [folder / "rows.parquet"]


def arrow(folder: Path) -> list[Path]:
    pyarrow, ipc = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.ipc")
    table = pyarrow.table({"text": [f"row {i}" for i in range(23)]})
    with ipc.new_stream(str(folder / "rows.arrow"), table.schema) as stream:
        stream.write_table(table, max_chunksize=5)
    return [folder / "rows.arrow"]


INPUTS: dict[str, Callable[[Path], list[Path]]] = {
    f.__name__: f for f in (plain_text, json_lines, mixed, parquet, arrow)
}


@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("size", [1, 3, 100])
def test_a_worker_reads_the_same_records(name: str, size: int, tmp_path: Path) -> None:
    paths = INPUTS[name](tmp_path)
    reader = make_reader("text", None, paths, {})
    check_chunks(reader, paths, size)


@pytest.mark.parametrize("document", ["line", "blank-line", "file", "heading"])
def test_each_unit_of_a_document_begins_again(document: str, tmp_path: Path) -> None:
    paths = plain_text(tmp_path)
    check_chunks(make_reader("text", "plain-text", paths, {"document": document}), paths, 2)


def check_chunks(reader: RawReader, paths: list[Path], size: int) -> None:
    chunks = list(cut_chunks(reader.records(paths), Limits(size)))
    assert sum(len(chunk.records) for chunk in chunks) >= 3
    for chunk in chunks:
        sent = chunk.to_send()
        assert not sent.records
        assert sum(each.records for each in sent.ranges) == len(chunk.records)
        assert [tuple(record[:3]) for record in sent.received(reader).records] == [tuple(r[:3]) for r in chunk.records]


def test_what_cannot_begin_again_is_sent(tmp_path: Path) -> None:
    packed = tmp_path / "rows.jsonl.gz"
    packed.write_bytes(gzip.compress(b'{"text": "a"}\n{"text": "b"}\n'))
    listed = tmp_path / "rows.json"
    listed.write_text('[{"text": "a"}, {"text": "b"}]')
    wide = tmp_path / "wide.jsonl"
    wide.write_bytes("\ufeff".encode("utf-16-le") + '{"text": "a"}\n'.encode("utf-16-le"))
    for path in (packed, listed, wide):
        (chunk,) = cut_chunks(make_reader("text", None, [path], {}).records([path]), Limits(9))
        assert chunk.to_send() is chunk


def test_large_row_groups_are_not_read_again_and_again(tmp_path: Path, monkeypatch: Any) -> None:
    from pipelines.sources import columnar

    paths = parquet(tmp_path, 23)
    monkeypatch.setattr(columnar, "GROUP_BYTES", 100)
    (chunk,) = cut_chunks(make_reader("text", None, paths, {}).records(paths), Limits(99))
    assert chunk.to_send() is chunk


def test_a_file_that_became_shorter_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"text": "a"}\n{"text": "b"}\n')
    reader = make_reader("text", None, [path], {})
    (chunk,) = cut_chunks(reader.records([path]), Limits(9))
    path.write_text('{"text": "a"}\n')
    with pytest.raises(WorkbenchError, match=r"rows\.jsonl changed while it was read"):
        chunk.to_send().received(reader)
