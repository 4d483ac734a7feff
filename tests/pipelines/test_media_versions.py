"""Files that records name may be replaced while a preparation is stopped: no shard is kept that was built from the
old."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pipelines.preparing.chunks import Limits
from pipelines.preparing.workspace import MEDIA
from pipelines.readers.formats import make_reader
from tests.pipelines.jobs import Job, prepare

STOPPED = {"now": True}
TWO = Limits(shard_size=2)


def stop_at_4(sample: Any) -> Any:
    if sample["key"] == "photo4" and STOPPED["now"]:
        raise KeyboardInterrupt
    return sample


@pytest.fixture
def stopped(tmp_path: Path, json_lines: Any, photograph: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Any]:
    """Three shards of two photographs, the last of which was not made; and what makes a job of them."""
    (tmp_path / "photos").mkdir()
    for i in range(6):
        (tmp_path / f"photos/photo{i}.jpg").write_bytes(photograph(i))
    path = json_lines("pairs.jsonl", [{"image": f"photo{i}.jpg", "captions": [f"photo {i}"]} for i in range(6)])

    def job(name: str) -> Job:
        reader = make_reader("image-text", None, [path], {"images": [str(tmp_path / "photos")]})
        return Job(reader, "image-text", tmp_path / name, stages=(stop_at_4,))

    with pytest.raises(KeyboardInterrupt):
        prepare(job("corpus"), [path], TWO)
    monkeypatch.setitem(STOPPED, "now", False)
    return path, job


def images_of(folder: Path, stored: Any) -> list[bytes]:
    return [sample["image"] for sample in stored(folder)]


def test_a_shard_of_an_image_that_was_replaced_is_made_again(
    stopped: Any, tmp_path: Path, photograph: Any, stored: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    path, job = stopped
    (tmp_path / "photos/photo1.jpg").write_bytes(photograph(100))
    untouched = (tmp_path / "corpus/part-000001.tar").stat().st_mtime_ns
    result = prepare(job("corpus"), [path], TWO)
    assert result.skipped == 1
    assert (tmp_path / "corpus/part-000001.tar").stat().st_mtime_ns == untouched
    assert images_of(tmp_path / "corpus", stored) == [photograph(i) for i in (0, 100, 2, 3, 4, 5)]
    assert not (tmp_path / "corpus" / MEDIA).exists()
    prepare(job("whole"), [path], TWO)
    names = [p.name for p in (tmp_path / "whole").glob("part-*")]
    assert all((tmp_path / "whole" / n).read_bytes() == (tmp_path / "corpus" / n).read_bytes() for n in names)


def test_of_equal_size_and_time_apart(stopped: Any, tmp_path: Path, photograph: Any, stored: Any) -> None:
    """A file that replaced another of its size is recognised by its time of change."""
    path, job = stopped
    photo = tmp_path / "photos/photo0.jpg"
    data = bytearray(photo.read_bytes())
    data[-3] ^= 1
    photo.write_bytes(data)
    os.utime(photo, ns=(photo.stat().st_atime_ns, photo.stat().st_mtime_ns + 1_000_000_000))
    assert prepare(job("corpus"), [path], TWO).skipped == 1
    assert images_of(tmp_path / "corpus", stored)[0] == bytes(data)


def test_one_that_has_come_since(stopped: Any, tmp_path: Path, photograph: Any, stored: Any) -> None:
    path, job = stopped
    (tmp_path / "photos/photo3.jpg").unlink()
    prepare(job("less"), [path], TWO)
    assert len(stored(tmp_path / "less")) == 5
    prepare(job("corpus"), [path], TWO)
    assert len(stored(tmp_path / "corpus")) == 5


def test_what_did_not_change_is_kept(stopped: Any, tmp_path: Path) -> None:
    """Whatever end a killed run left in the note."""
    path, job = stopped
    with (tmp_path / "corpus" / MEDIA).open("a") as file:
        file.write("1 12ab")
    assert prepare(job("corpus"), [path], TWO).skipped == 2
