"""Files are written completely or not at all."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from workbench.core.files.drafts import atomic, draft_folder, write_text


def a_dead_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_nothing_is_left_of_a_write_that_fails(tmp_path: Path) -> None:
    def fails() -> None:
        with atomic(tmp_path / "a.json") as file:
            file.write(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()
    assert list(tmp_path.iterdir()) == []


def test_drafts_of_killed_processes_go_and_others_stay(tmp_path: Path) -> None:
    host, dead = socket.gethostname(), a_dead_process()
    gone = [f".a.json.{dead}@{host}.x1.part", f".a.json.{dead}@{host}.x2.part"]
    kept = [
        f".a.json.{os.getpid()}@{host}.x3.part",
        f".a.json.{dead}@elsewhere.x4.part",
        f".b.json.{dead}@{host}.x5.part",
        ".a.json.x6.part",
    ]
    for name in (*gone, *kept):
        (tmp_path / name).write_text("half")
    write_text(tmp_path / "a.json", "{}")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["a.json", *kept])


def test_drafts_of_folders_go_too(tmp_path: Path) -> None:
    left = tmp_path / f".graph.{a_dead_process()}@{socket.gethostname()}.x1"
    left.mkdir()
    (left / "triples.npy").write_bytes(b"half")
    folder = draft_folder(tmp_path / "graph")
    assert list(tmp_path.iterdir()) == [folder]
