"""Tars with unusual or damaged content: `index` reports in one message what it cannot read."""

from __future__ import annotations

import io
import json
import logging
import tarfile
from pathlib import Path
from typing import Any

import pytest

from workbench.core.errors import WorkbenchError
from workbench.corpora.foreign import index_foreign


def entry(name: str, size: int = 0, **fields: Any) -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.size = size
    for field, value in fields.items():
        setattr(found, field, value)
    return found


def raw_tar(path: Path, *headers: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(headers) + b"\0" * 10240)
    return path


def linked(text: str, **fields: Any) -> list[tuple[str, bytes]]:
    return [("a.json", json.dumps({"text": text, **fields}).encode())]


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([("a.json", b'{"text": ' * 40_000)], r"key 'a': member json is not JSON"),
        ([("a.json", b"[" * 100_000 + b"]" * 100_000)], r"key 'a': member json is not JSON"),
        (linked("Paris", spans=[[0, 50, "Q1", 1.0]]), r"key 'a': spans: \[0, 50\) .* outside its text of 5 characters"),
        (linked("Paris", spans=[[0, "5", "Q1", 1.0]]), r"key 'a': spans: .* is not \[start, end, entity id, score\]"),
        (linked("Paris", spans=[7]), r"key 'a': spans: 7 is not \[start, end, entity id, score\]"),
        (linked("Paris", spans=[[0, 5, "Q1", None]]), r"key 'a': spans: .* is not \[start, end, entity id, score\]"),
        (linked("Paris", mask_spans=[[3]]), r"key 'a': mask_spans: \[3\] is not \[start, end, ...\]"),
        (linked("Paris", mask_spans=["ab"]), r"key 'a': mask_spans: 'ab' is not \[start, end, ...\]"),
        (linked("Paris", mention=[1, 2, 3]), r"key 'a': mention: \[1, 2, 3\] is not \[start, end\]"),
        ([("a.json", b'{"text": "half \\ud800 a pair"}')], r"key 'a': a text is not valid Unicode"),
        ([("a.jpg", b"x"), ("a.json", b'{"captions": [3]}')], r"key 'a': captions: '3' is of type int, not a string"),
        (
            [("a.jpg", b"x"), ("a.json", b'{"captions": ["b"], "caption_spans": [5]}')],
            "caption_spans a list of stretches for each",
        ),
    ],
)
def test_a_record_that_does_not_fit(make_tar: Any, tmp_path: Path, members: Any, message: str) -> None:
    tar = make_tar(members)
    with pytest.raises(WorkbenchError, match=message) as caught:
        index_foreign([tar.parent], tmp_path / "out")
    assert str(tar) in str(caught.value)
    assert not (tmp_path / "out" / "corpus.json").exists()


def test_a_name_that_is_not_utf8(tmp_path: Path) -> None:
    header = entry("caf\udce9.txt", 1).tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")
    tar = raw_tar(tmp_path / "set" / "a.tar", header, b"x".ljust(512, b"\0"))
    with pytest.raises(WorkbenchError, match=r"a\.tar: the name 'caf\\udce9\.txt' is not UTF-8; rename"):
        index_foreign([tar.parent], tmp_path / "out")


def test_a_sparse_member(tmp_path: Path) -> None:
    header = entry("a.txt", 0, type=tarfile.GNUTYPE_SPARSE).tobuf(tarfile.GNU_FORMAT)
    tar = raw_tar(tmp_path / "set" / "a.tar", header)
    with pytest.raises(WorkbenchError, match=r"a\.tar: the member 'a\.txt' is stored as a sparse file.*--sparse"):
        index_foreign([tar.parent], tmp_path / "out")


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE])
def test_a_name_of_256_gibibytes(tmp_path: Path, kind: bytes) -> None:
    header = entry("././@LongLink", 256 << 30, type=kind).tobuf(tarfile.GNU_FORMAT)
    tar = raw_tar(tmp_path / "set" / "a.tar", header)
    with pytest.raises(WorkbenchError, match=r"a\.tar: the tar is truncated or damaged .*a header requests 2748779"):
        index_foreign([tar.parent], tmp_path / "out")


def test_what_is_no_file_is_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "set" / "a.tar"
    path.parent.mkdir()
    with tarfile.open(path, "w") as tar:
        tar.addfile(entry("folder", type=tarfile.DIRTYPE))
        for name, kind in (("1", tarfile.SYMTYPE), ("2", tarfile.SYMTYPE), ("3", tarfile.LNKTYPE), ("4", b"3")):
            tar.addfile(entry(f"{name}.txt", type=kind, linkname="a.txt"))
        tar.addfile(entry("a.txt", 3), io.BytesIO(b"abc"))
    with caplog.at_level(logging.WARNING):
        assert index_foreign([path.parent], tmp_path / "out").records == 1
    assert "left out because they are no files: 2 symbolic links, 1 hard links, 1 devices" in caplog.text
