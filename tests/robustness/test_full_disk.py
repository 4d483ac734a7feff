"""A disk that is really full (a small tmpfs), and what else a system refuses: one message, nothing half-written."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError

import workbench as package
from workbench.core.errors import MachineError
from workbench.runs import checkpoint, weights
from workbench.runs.checkpoints import Checkpoints
from workbench.runs.metrics_file import read_metrics

Refused = Callable[..., str]


@pytest.fixture
def disk(world: Path) -> Iterator[Callable[[str], Path]]:
    """Mounts a small file system at `disk`: `disk("300k")`, and again to give it another size."""
    place = world / "disk"
    place.mkdir()

    def resize(size: str) -> Path:
        options = f"remount,size={size}" if os.path.ismount(place) else f"size={size}"
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], capture_output=True)
        if done.returncode:
            pytest.skip(f"NOT TESTED: a full disk needs the right to mount a tmpfs ({done.stderr.decode().strip()})")
        return place

    yield resize
    if os.path.ismount(place):
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def hidden(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob(".*")]


@pytest.mark.parametrize("size", ["4k", "120k", "200k"])
def test_a_run_on_a_full_disk_continues_with_room(
    world: Path, disk: Callable[[str], Path], refused: Refused, workbench: Any, size: str
) -> None:
    """It is full at the start, in the first checkpoint or in a later one: in its weights or its moments."""
    run = disk(size) / "run"
    command = ("pretrain", "recipe.yaml", "train.save_every=1", "train.keep_last=9", "--run", run)
    message = refused(*command, code=1)
    assert "the disk is full" in message
    assert str(run) in message
    assert "earlier checkpoints are whole" not in message or Checkpoints(run).steps()
    assert not run.exists() or not hidden(run)
    for step in Checkpoints(run).steps():
        checkpoint.verify_checkpoint(run / "checkpoints" / f"step-{step}")
    disk("64m")
    assert workbench(*command).code == 0
    assert workbench("pretrain", "recipe.yaml", "--run", "whole").code == 0
    assert losses(run) == losses(world / "whole")
    one, two = (package.load(place).torch.state_dict() for place in (run, world / "whole"))
    assert all(torch.equal(one[name], two[name]) for name in one)


def losses(run: Path) -> list[float]:
    return [record["mlm/loss"] for record in read_metrics(run)]


FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def covered(*_: Any) -> None:
    """As torch does: the file's error, and then another while it is closed."""
    try:
        raise FULL
    finally:
        raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 704 vs 598")


def in_words(*_: Any) -> None:
    """As safetensors does: an error of its own."""
    raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")


def plain(*_: Any) -> None:
    raise FULL


@pytest.mark.parametrize(
    ("module", "name", "full"),
    [(checkpoint.torch, "save", covered), (weights, "save_file", in_words), (checkpoint, "write_text", plain)],
)
def test_every_part_of_a_checkpoint_on_a_full_disk(
    world: Path, refused: Refused, workbench: Any, monkeypatch: pytest.MonkeyPatch, module: Any, name: str, full: Any
) -> None:
    assert workbench("pretrain", "recipe.yaml", "train.lr_schedule=constant", "--run", "run").code == 0
    longer = ("pretrain", "recipe.yaml", "train.lr_schedule=constant", "train.max_steps=6", "--run", "run")
    with monkeypatch.context() as patch:
        patch.setattr(module, name, full)
        message = refused(*longer, code=1)
    assert "step-6" in message
    assert "the disk is full" in message
    assert "earlier checkpoints are whole" in message
    assert sorted(path.name for path in (world / "run" / "checkpoints").iterdir()) == ["step-2", "step-4"]
    assert workbench(*longer).code == 0


def test_an_error_of_a_library_that_is_no_full_disk_stays_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise SafetensorError("a bug")

    monkeypatch.setattr(weights, "save_file", broken)
    with pytest.raises(SafetensorError, match="a bug"):
        weights.save_tensors(tmp_path / "w.safetensors", {}, {})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "command",
    [
        ["prepare", "tokenizer", "corpora/text", "--vocab-size", "120", "--output", "disk/tokenizer.json"],
        ["prepare", "text", "notes.txt", "--output", "disk/corpus"],
        ["report", "run", "--output", "disk/report.html"],
        ["encode", "run", "corpora/text", "--output", "disk/vectors.safetensors"],
        ["export", "run", "--as", "bert", "--output", "disk/exported"],
    ],
)
def test_commands_on_a_full_disk(
    world: Path, disk: Callable[[str], Path], refused: Refused, workbench: Any, command: list[str]
) -> None:
    assert workbench("pretrain", "recipe.yaml", "train.max_steps=1", "--run", "run").code == 0
    place = disk("4k")
    (place / "filler").write_bytes(bytes(4096))
    message = refused(*command, code=1)
    assert "the disk is full" in message
    assert "disk/" in message
    assert [path.name for path in place.rglob("*")] == ["filler"]
    disk("64m")
    assert workbench(*command).code == 0


@pytest.mark.parametrize(
    ("folder", "command"),
    [
        ("corpora/text/corpus.json", ["verify", "corpora/text"]),
        ("notes.txt", ["prepare", "text", "notes.txt/x", "--output", "out"]),
        ("report.html", ["report", "run", "--output", "report.html"]),
        (
            "tokenizer.json",
            ["prepare", "tokenizer", "corpora/text", "--vocab-size", "120", "--output", "tokenizer.json"],
        ),
        ("run/log.txt", ["pretrain", "recipe.yaml", "train.lr_schedule=constant", "--run", "run"]),
        ("run/metrics.jsonl", ["pretrain", "recipe.yaml", "train.lr_schedule=constant", "--run", "run"]),
    ],
)
def test_a_folder_where_a_file_is_meant(world: Path, workbench: Any, folder: str, command: list[str]) -> None:
    """Stands for whatever cannot be opened (no permission would not stop root)."""
    once = ("train.lr_schedule=constant", "train.max_steps=1")
    assert workbench("pretrain", "recipe.yaml", *once, "--run", "run").code == 0
    if (world / folder).is_file():
        (world / folder).unlink()
    (world / folder).mkdir()
    ended = workbench(*command)
    assert ended.code == 2, ended.err
    assert ended.err.count("error:") == 1, ended.err
    assert "Traceback" not in ended.err
    assert Path(folder).name in ended.err
    assert not list(world.rglob(".*.part"))


def test_errors_of_the_system_are_messages(tmp_path: Path) -> None:
    from workbench.core.errors import system_error

    with pytest.raises(OSError, match="Is a directory") as raised:
        tmp_path.read_bytes()
    assert str(system_error(raised.value)).startswith(f"{tmp_path}: a folder is where a file is needed")
    assert "Input/output error" in str(system_error(OSError(errno.EIO, "Input/output error")))
    assert "the disk is full" in str(system_error(OSError("400 requested and 80 written")))  # numpy's
    assert str(system_error(OSError("odd"))) == (
        "the operating system says: odd. Fix that and run the same command again"
    )
    assert system_error(FULL, "here").exit_code == MachineError.exit_code == 1
    shutil.rmtree(tmp_path)


READ_ONLY = OSError(errno.EROFS, os.strerror(errno.EROFS), "disk")


def no_entry(*_: Any, **__: Any) -> None:
    raise READ_ONLY


@pytest.mark.parametrize(
    "command",
    [
        ["prepare", "tokenizer", "corpora/text", "--vocab-size", "120", "--output", "disk/tokenizer.json"],
        ["prepare", "text", "notes.txt", "--output", "disk/corpus"],
        ["pretrain", "recipe.yaml", "--run", "disk/run"],
    ],
)
@pytest.mark.parametrize("call", ["pathlib.Path.mkdir", "workbench.core.files.drafts._new_file"])
def test_a_folder_that_may_not_be_written_is_a_wrong_input(
    world: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch, command: list[str], call: str
) -> None:
    """A full disk is the machine's failure (1), a place that was chosen wrongly is not (2)."""
    monkeypatch.setattr(call, no_entry)
    assert "cannot write here (Read-only file system); choose another place" in refused(*command, code=2)
