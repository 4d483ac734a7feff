"""The encoding of texts by their byte order mark, and where members of foreign tars are read by it."""

from __future__ import annotations

import codecs
import json
from pathlib import Path

import pytest

from workbench.core.errors import WorkbenchError
from workbench.core.files.text_files import decoded, read_lines
from workbench.corpora.foreign_record import decode_foreign

MARKED = [
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (b"", "utf-8"),
]


@pytest.mark.parametrize(("mark", "encoding"), MARKED)
def test_a_mark_says_the_encoding(mark: bytes, encoding: str) -> None:
    said = "ein Hund läuft: 狗"
    assert decoded(mark + said.encode(encoding)) == said
    reported = json.dumps({"caption": said, "url": "ü"}, ensure_ascii=False)
    for members in ({"txt": said}, {"json": reported}):
        encoded = {name: mark + text.encode(encoding) for name, text in members.items()}
        assert decode_foreign({"jpg": b"\xff\xd8\xff", **encoded}, "image-text")["captions"] == [said]


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(UnicodeDecodeError):
        decoded(b"\xff\xfea")


def test_lines_that_are_no_text_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"\x89PNG")
    with pytest.raises(WorkbenchError, match=r"a\.png is not UTF-8 at byte 0; convert it first"):
        read_lines(tmp_path / "a.png")
