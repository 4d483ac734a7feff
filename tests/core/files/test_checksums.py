"""A file is hashed once for each version of it, on a whole machine, and never believed after it changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from workbench.core.files import checksums
from workbench.core.files.drafts import sha256_of


class Hasher:
    """sha256_of, counting how often it is asked."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, path: Path) -> str:
        self.calls += 1
        return sha256_of(path)


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Fresh files are remembered too, in a cache of their own."""
    monkeypatch.setattr(checksums, "SETTLED", -(2**62))
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))


def another_process() -> None:
    checksums._remembered.clear()
    checksums._read.clear()


def test_a_version_is_hashed_once_also_by_other_processes(tmp_path: Path, settled: None) -> None:
    files = [tmp_path / name for name in ("one", "two", "a name\nof two lines")]
    hasher = Hasher()
    for path in files:
        path.write_bytes(b"content")
    known = sha256_of(files[0])
    for _ in range(3):
        assert all(checksums.matches(path, known, hasher) for path in files)
        another_process()
    assert hasher.calls == len(files)


def test_a_change_is_seen_although_size_and_time_are_as_before(tmp_path: Path, settled: None) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    known, before = sha256_of(path), path.stat()
    assert checksums.matches(path, known)
    with path.open("r+b") as file:
        file.write(b"CONTENT")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert not checksums.matches(path, known)
    assert checksums.matches(path, sha256_of(path))


def test_a_file_just_written_is_not_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(checksums, "SETTLED", 2**62)
    path, hasher = tmp_path / "file", Hasher()
    path.write_bytes(b"content")
    for _ in range(2):
        assert checksums.matches(path, sha256_of(path), hasher)
    assert hasher.calls == 2


@pytest.mark.parametrize("damage", [b"\xff\xfe nonsense", b""])
def test_a_damaged_or_unwritable_memory_costs_a_hash_only(tmp_path: Path, settled: None, damage: bytes) -> None:
    path, hasher = tmp_path / "file", Hasher()
    path.write_bytes(b"content")
    known = sha256_of(path)
    assert checksums.matches(path, known, hasher)
    (record,) = (tmp_path / "cache" / "verified").iterdir()
    record.write_bytes(damage)
    another_process()
    assert checksums.matches(path, known, hasher)
    assert not checksums.matches(path, known[::-1], hasher)
    record.unlink()
    record.mkdir()
    another_process()
    assert checksums.matches(path, known, hasher)
    assert hasher.calls == 4
