"""A reader of the output that goes away is no error; a broken pipe of any other kind is one."""

from __future__ import annotations

import errno
import multiprocessing
import os
import sys
from pathlib import Path

import pytest

from workbench.cli.app import reported


def to_nobody(said: Path) -> None:
    """As `workbench ... | true`."""
    reader, writer = os.pipe()
    os.close(reader)
    os.dup2(writer, 1)
    with said.open("w") as file:
        os.dup2(file.fileno(), 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
    with reported():
        print("all of it", flush=True)  # noqa: T201


def test_nothing_is_said_where_nobody_reads(tmp_path: Path) -> None:
    process = multiprocessing.get_context("fork").Process(target=to_nobody, args=(tmp_path / "said",))
    process.start()
    process.join()
    assert process.exitcode == 1
    assert (tmp_path / "said").read_text() == ""


def test_the_broken_pipe_of_a_component_is_reported(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended, reported():
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
    assert ended.value.code == 1
    assert "Broken pipe" in capfd.readouterr().err
