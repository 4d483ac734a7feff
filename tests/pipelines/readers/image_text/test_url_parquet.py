"""The image-text format `url-parquet`."""

from __future__ import annotations

import hashlib
import io
from typing import Any

import pytest

from tests.contracts.cases import ReaderCase
from tests.contracts.raw_inputs import images
from workbench.core.errors import WorkbenchError


def parquet(rows: list[dict[str, Any]]) -> bytes:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    buffer = io.BytesIO()
    write_table(pyarrow.Table.from_pylist(rows), buffer, row_group_size=2)
    return buffer.getvalue()


CASE = ReaderCase(
    excused={"streams": "some rows are read at once", "long lines": "there are no lines"},
    text=lambda records: parquet([{"URL": f"https://x.org/{i}.png", "TEXT": "a dog"} for i in range(records)]),
    file="part-00000.parquet",
    alongside=images,
    needs="pyarrow",
)


def test_what_a_list_says_of_a_pair_goes_to_its_meta(tmp_path, read):
    laion = {"URL": "http://x.org/a.jpg", "TEXT": "A dog", "similarity": 0.31, "WIDTH": 640, "NSFW": "UNLIKELY"}
    rows = [laion, laion | {"URL": None}, laion | {"TEXT": None, "similarity": float("nan")}]
    (tmp_path / "list.parquet").write_bytes(parquet(rows))
    first, second = read("image-text", tmp_path / "list.parquet", fetch=True)
    own = {"url": "http://x.org/a.jpg", "source": "list.parquet"}
    assert first["meta"] == {"similarity": 0.31, "WIDTH": 640, "NSFW": "UNLIKELY", **own}
    assert second["captions"] == [""], "which the cleaning of captions drops"
    assert "similarity" not in second["meta"]
    assert [first["key"], second["key"]] == ["list-1", "list-3"]


def test_a_listed_checksum_is_not_lost(tmp_path, read, photograph):
    """DataComp's columns, where another image is at the URL today: both checksums are stored."""
    listed = {"uid": "0a1b", "url": "http://x.org/a.jpg", "text": "A dog", "original_width": 8, "sha256": "ab" * 32}
    listed |= {"clip_l14_similarity_score": 0.25, "face_bboxes": [[0.1, 0.2, 0.3, 0.4]]}
    (tmp_path / "list.parquet").write_bytes(parquet([listed]))
    (tmp_path / "a.jpg").write_bytes(photograph(1))
    (sample,) = read("image-text", tmp_path / "list.parquet", images=[str(tmp_path)])
    assert sample["meta"]["listed_sha256"] == "ab" * 32
    assert sample["meta"]["sha256"] == hashlib.sha256(photograph(1)).hexdigest()
    assert sample["meta"]["uid"] == "0a1b"
    assert sample["meta"]["face_bboxes"] == [[0.1, 0.2, 0.3, 0.4]]


def test_columns_of_other_names(tmp_path, read):
    (tmp_path / "list.parquet").write_bytes(parquet([{"link": "http://x.org/a.jpg", "text": "A dog"}]))
    with pytest.raises(WorkbenchError, match=r"list\.parquet: none of the columns link, text is named url or"):
        read("image-text", tmp_path / "list.parquet", fetch=True)
    (sample,) = read("image-text", tmp_path / "list.parquet", fetch=True, url_column="link")
    assert sample["meta"]["url"] == "http://x.org/a.jpg"


def test_captions_may_be_lists_and_are_never_spelt_out(tmp_path, read):
    rows = [
        {"url": "http://x.org/a.jpg", "caption": ["a dog", " one dog "]},
        {"url": "http://x.org/b.jpg", "caption": ["a cat"]},
        {"url": "http://x.org/c.jpg", "caption": None},
        {"url": "http://x.org/d.jpg", "caption": []},
    ]
    (tmp_path / "list.parquet").write_bytes(parquet(rows))
    captions = [sample["captions"] for sample in read("image-text", tmp_path / "list.parquet", fetch=True)]
    assert captions == [["a dog", "one dog"], ["a cat"], [""], [""]]


@pytest.mark.parametrize("cell", [{"en": "a dog"}, 7, True, [["a dog"]], [1.5]])
def test_captions_of_another_kind_are_refused_by_their_column(tmp_path, read, cell):
    (tmp_path / "list.parquet").write_bytes(parquet([{"url": "http://x.org/a.jpg", "caption": cell}]))
    with pytest.raises(
        WorkbenchError, match=r"list\.parquet:1: the column 'caption' holds .*allowed: a text, or a list"
    ):
        read("image-text", tmp_path / "list.parquet", fetch=True)
