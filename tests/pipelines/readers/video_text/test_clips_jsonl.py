"""The video-text format `clips-jsonl`."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.commands.options import ReadingOptions
from pipelines.readers.formats import make_reader
from pipelines.readers.reader import Drop, MalformedError
from pipelines.stages.media_checks import CheckVideo
from pipelines.stages.truncation import LATE
from tests.contracts.cases import ReaderCase
from tests.contracts.raw_inputs import json_lines
from workbench.corpora.corpus import Corpus


def array(clips: int = 4, size: int = 3, seed: int = 0, dtype: str = "float32") -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.random.default_rng(seed).standard_normal((clips, size)).astype(dtype))
    return buffer.getvalue()


def row(i: int) -> dict[str, Any]:
    return {"clips": f"{i}.npy", "captions": ["a"], "times": [[0, 1]], "url": "x"}


CASE = ReaderCase(
    excused={"streams": "the rows of one video are gathered"},
    text=json_lines(row),
    alongside=lambda records: {f"{i}.npy": array(seed=i) for i in range(records)},
)


def read(folder: Path, rows: list[dict[str, Any]], **options: Any) -> list[Any]:
    file = folder / "data.jsonl"
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    reader = make_reader("video-text", None, [file], options)
    return [reader.read(record) for record in reader.records([file])]


def test_a_clip_is_a_row_of_so_many_seconds(tmp_path: Path) -> None:
    """Rows of a video are gathered; its name may leave the ending out."""
    (tmp_path / "a.npy").write_bytes(array())
    rows = [{"clips": "a", "caption": c, "start": s, "end": s + 1} for c, s in (("late", 2), ("early", 0))]
    [found] = read(tmp_path, rows, seconds=1.5, backbone="mine")
    assert (found["key"], found["captions"], found["caption_times"]) == ("a", ["early", "late"], [[0, 1], [2, 3]])
    np.testing.assert_allclose(found["clips"]["times"], [[0, 1.5], [1.5, 3], [3, 4.5], [4.5, 6]])
    np.testing.assert_array_equal(found["clips"]["features"], np.load(io.BytesIO(array())).astype(np.float16))
    assert found["meta"]["backbone"] == "mine"
    assert "video" not in found


def test_files_in_a_tar(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "videos.tar", "w") as archive:
        for name, data in (("x/a.npy", array(seed=1)), ("x/b.npy", array(seed=2, dtype="float16"))):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    first, second = read(tmp_path, [{"clips": name, "captions": ["c"]} for name in ("a.npy", "b.npy")])
    np.testing.assert_array_equal(first["clips"]["features"], np.load(io.BytesIO(array(seed=1))).astype(np.float16))
    np.testing.assert_array_equal(second["clips"]["features"], np.load(io.BytesIO(array(seed=2, dtype="float16"))))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (array()[:60], "damaged clips"),
        (array()[:-5], "damaged clips"),
        (b"<html>", "damaged clips"),
        (b"", "damaged clips"),
        (array(clips=0), "damaged clips"),
        (array(dtype="int32"), "damaged clips"),
        (array().replace(array()[-4:], np.float32(np.nan).tobytes()), "damaged clips"),
        (array().replace(array()[-4:], np.float32(1e9).tobytes()), "damaged clips"),
        (None, "clips not found"),
    ],
)
def test_what_cannot_be_used_is_counted(tmp_path: Path, data: bytes | None, reason: str) -> None:
    (tmp_path / "good.npy").write_bytes(array())
    if data is not None:
        (tmp_path / "bad.npy").write_bytes(data)
    rows = [{"clips": f"{name}.npy", "captions": ["x"], "times": [[2, 3]]} for name in ("good", "bad")]
    good, bad = read(tmp_path, rows)
    assert "clips" in good
    assert isinstance(bad, Drop)
    assert bad.reason.endswith(reason)


def test_captions_behind_the_last_clip(tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(array())
    within, behind = ({"clips": "a.npy", "captions": ["x"], "times": [times]} for times in ([2, 3], [5, 6]))
    [found] = read(tmp_path, [within])
    assert CheckVideo()(found) is found
    assert CheckVideo()(read(tmp_path, [behind])[0]) == LATE


def test_objects_are_not_unpickled(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    np.save(buffer, np.array([[{"a": 1}]], dtype=object), allow_pickle=True)
    (tmp_path / "a.npy").write_bytes(buffer.getvalue())
    [found] = read(tmp_path, [{"clips": "a.npy", "captions": ["x"]}])
    assert isinstance(found, Drop)


def test_clips_of_another_size(tmp_path: Path) -> None:
    for name, size in (("a", 3), ("b", 5)):
        (tmp_path / f"{name}.npy").write_bytes(array(size=size))
    with pytest.raises(MalformedError, match=r"another feature size \(b\.npy: 5, those before: 3\)"):
        read(tmp_path, [{"clips": f"{name}.npy", "captions": ["x"]} for name in "ab"])


def test_the_corpus_says_what_made_its_features(tmp_path: Path, json_lines: Any) -> None:
    (tmp_path / "0.npy").write_bytes(array())
    path = json_lines("videos.jsonl", [row(0)])
    ReadingOptions(inputs=[str(path)], output=tmp_path / "corpus", workers=1).read("video-text")
    corpus = Corpus.open(tmp_path / "corpus")
    assert corpus.manifest.about == {"backbone": "s3d"}
    assert corpus.read(0, 0)["clips"]["features"].shape == (4, 3)
