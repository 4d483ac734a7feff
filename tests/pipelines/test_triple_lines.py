"""Triples in lines, as options name them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.sources.triple_lines import read_triples
from workbench.core.errors import WorkbenchError


def test_lines_are_triples(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("oslo\tlies in\tnorway\n")
    assert list(read_triples(tmp_path / "a.tsv")) == [("oslo", "lies in", "norway")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there is no file"),
        (b"", r"a\.tsv is empty: it should hold triples"),
        (b"oslo\tnorway\n", "line 1: found 2 columns"),
        (b"oslo\t\xff\tnorway\n", "line 1"),
    ],
)
def test_a_file_without_triples_is_refused(tmp_path: Path, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / "a.tsv").write_bytes(content)
    with pytest.raises(WorkbenchError, match=message):
        list(read_triples(tmp_path / "a.tsv"))
