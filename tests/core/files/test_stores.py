"""Folders of object stores: what is written, tried again and refused."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from workbench.core.errors import MachineError, WorkbenchError
from workbench.core.files.stores import NoSuchFileError, Store, fetched, fetched_folder, uploaded


@pytest.fixture
def store() -> Iterator[Store]:
    made = Store(f"memory://{uuid.uuid4().hex}/folder")
    yield made
    made.remove(list(made.files()))


def test_files_are_written_listed_fetched_and_removed(store: Store, tmp_path: Path) -> None:
    assert store.files() == {}
    assert store.put_bytes(b"one", "a/b", new=True)
    assert not store.put_bytes(b"two", "a/b", new=True)
    (tmp_path / "c").write_bytes(b"three")
    store.put(tmp_path / "c", "c")
    assert store.files() == {"a/b": 3, "c": 5}
    store.get("a/b", tmp_path / "here" / "b")
    assert (tmp_path / "here" / "b").read_bytes() == store.read("a/b") == b"one"
    folder = fetched_folder(store)
    assert folder is not None
    assert (folder / "a" / "b").read_bytes() == b"one"
    first = fetched(store.at("c"))
    store.remove(["c", "not there"])
    store.put_bytes(b"another", "c")
    assert (first.read_bytes(), fetched(store.at("c")).read_bytes()) == (b"three", b"another")
    assert store.read("not there") is None
    with pytest.raises(NoSuchFileError, match=r"there is no memory://.*/folder/not there"):
        store.get("not there", tmp_path / "d")
    assert not (tmp_path / "d").exists()


def test_output_is_uploaded_unless_the_work_fails(store: Store) -> None:
    with uploaded(store.at("x.json")) as path:
        path.write_text("{}")
    with pytest.raises(ZeroDivisionError), uploaded(store.at("y.json")):
        raise ZeroDivisionError
    assert store.files() == {"x.json": 2}
    with pytest.raises(WorkbenchError, match=r"memory://x names no file"):
        uploaded("memory://x").__enter__()


def test_write_is_tried_again(store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("WORKBENCH_STORE_TRIES", "2")
    written, left = MemoryFileSystem.pipe_file, 1

    def failing(files: Any, path: str, value: bytes, **options: Any) -> None:
        nonlocal left
        left -= 1
        if left >= 0:
            raise ConnectionError("cut off")
        written(files, path, value, **options)

    monkeypatch.setattr(MemoryFileSystem, "pipe_file", failing)
    with caplog.at_level(logging.WARNING):
        assert store.put_bytes(b"one", "a")
    assert "cut off (try 1 of 2)" in caplog.text
    left = 2
    with pytest.raises(MachineError, match=r"folder/a cannot be written: cut off. It was tried 2 times"):
        store.put_bytes(b"two", "a")
    assert store.read("a") == b"one"
