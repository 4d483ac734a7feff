"""Files are written completely or not at all, and only replace files."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from workbench.core.errors import WorkbenchError
from workbench.core.files import drafts
from workbench.core.files.drafts import check_writable, write_text


def pipe(place: Path) -> None:
    os.mkfifo(place)


def link_to_a_pipe(place: Path) -> None:
    os.mkfifo(place.with_name("pipe"))
    place.symlink_to("pipe")


def link_to_nothing(place: Path) -> None:
    place.symlink_to("nowhere")


def folder(place: Path) -> None:
    place.mkdir()


@pytest.mark.parametrize(
    ("make", "found"),
    [(pipe, "a pipe or device"), (link_to_a_pipe, "a link"), (link_to_nothing, "a link"), (folder, "a folder")],
)
def test_what_is_no_file_is_not_replaced(tmp_path: Path, make: Callable[[Path], None], found: str) -> None:
    place = tmp_path / "out"
    make(place)
    before = {path.name: stat.S_IFMT(path.lstat().st_mode) for path in tmp_path.iterdir()}
    for check in (check_writable, lambda path: write_text(path, "words")):
        with pytest.raises(WorkbenchError, match=f"out is {found}; only a file may be overwritten"):
            check(place)
    assert {path.name: stat.S_IFMT(path.lstat().st_mode) for path in tmp_path.iterdir()} == before


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("words")
    long = "n" * 250  # fits a file's name, but not that of a draft of it
    for place, reported in (("file/out", "file"), ("file/a/out", "file"), (long, long), (f"new/{long}", long)):
        for check in (check_writable, lambda path: write_text(path, "words")):
            with pytest.raises(WorkbenchError) as refused:
                check(Path(place))
            assert reported in str(refused.value)
            assert "@" not in str(refused.value), "a draft's name"
    with pytest.raises(WorkbenchError, match=r"'\.' has no file name"):
        write_text(Path(""), "words")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_place_that_can_be_written_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("words")
    check_writable(tmp_path / "file")
    check_writable(tmp_path / "a" / "b" / "file")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("file", "words")]


def test_drafts_whose_writer_may_live(tmp_path: Path) -> None:
    host = socket.gethostname()
    gone = subprocess.Popen(["true"])
    gone.wait()

    def written(owner: str, age: float = 0.0) -> bool:
        path = tmp_path / f".shard.tar.{owner}.a1b2c3.part"
        path.touch()
        os.utime(path, (time.time() - age,) * 2)
        return drafts.may_be_written(path)

    assert written(f"{os.getpid()}@{host}", age=2 * drafts.FORGOTTEN), "a living process of this machine"
    assert not written(f"{gone.pid}@{host}")
    assert written("1@node-7.example.org", age=drafts.FORGOTTEN / 2), "another machine"
    assert not written("1@node-7.example.org", age=2 * drafts.FORGOTTEN)
    assert not drafts.may_be_written(tmp_path / ".shard.tar.abc.part")
