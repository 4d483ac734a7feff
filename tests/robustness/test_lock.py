"""Two starts in one folder: the second gets a message that says who is there, and changes nothing."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from workbench.core.errors import WorkbenchError
from workbench.core.files.lock import locked

Refused = Callable[..., str]


def hold(folder: Path, held: Any) -> None:
    with locked(folder):
        if not os.fork():  # as a loader's worker: it outlives its parent for a moment
            time.sleep(5)
            os._exit(0)
        held.set()
        time.sleep(600)


@contextmanager
def holder(folder: Path) -> Iterator[int]:
    """Another process that holds the folder; killed in the end."""
    context = multiprocessing.get_context("fork")
    held = context.Event()
    process = context.Process(target=hold, args=(folder, held), daemon=True)
    process.start()
    assert held.wait(600)
    try:
        yield process.pid or 0
    finally:
        process.kill()
        process.join()


@pytest.mark.parametrize(
    "command",
    [
        ["pretrain", "recipe.yaml", "--run", "held"],
        ["prepare", "text", "notes.txt", "--output", "held"],
    ],
)
def test_a_folder_in_use_is_refused(world: Path, refused: Refused, workbench: Any, command: list[str]) -> None:
    with holder(world / "held") as pid:
        message = refused(*command)
        assert f"held is in use: process {pid} on " in message
        assert "choose another folder" in message
        assert [path.name for path in (world / "held").iterdir()] == [".lock"]
    assert workbench(*command).code == 0  # the holder was killed
    assert not (world / "held" / ".lock").exists()


def test_a_process_does_not_lock_twice(tmp_path: Path) -> None:
    with locked(tmp_path / "run"):
        with pytest.raises(WorkbenchError, match="by this process itself"), locked(tmp_path / "run"):
            pass
        assert (tmp_path / "run").exists()
    assert not (tmp_path / "run").exists()
    with locked(tmp_path / "run"):
        (tmp_path / "run" / "file").touch()
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["file"]


def test_a_lock_that_was_removed_meanwhile_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The holder before removes its file after we opened it: the lock on that file keeps nobody out."""
    from workbench.core.files import lock as folder_lock

    real, removed = folder_lock.fcntl.lockf, []

    def lockf(file: Any, how: int) -> None:
        real(file, how)
        if not removed:
            removed.append(True)
            (tmp_path / ".lock").unlink()

    monkeypatch.setattr(folder_lock.fcntl, "lockf", lockf)
    with locked(tmp_path):
        assert (tmp_path / ".lock").is_file()
    assert removed
