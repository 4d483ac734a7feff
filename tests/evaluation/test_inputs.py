"""Texts that a command is given in a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.core.errors import WorkbenchError
from workbench.evaluation.scoring.inputs import input_corpus, text_lines


def test_only_a_line_feed_ends_a_line(tmp_path: Path) -> None:
    within = "a\x0cb\x1cc\x85d\u2028e\rf"
    path = tmp_path / "texts.txt"
    path.write_bytes(f"{within}\r\n \nlast".encode())
    assert text_lines(path) == [(1, within), (3, "last")]
    path.write_bytes(b"one\n\n")
    assert text_lines(path) == [(1, "one")]
    path.write_bytes(b"")
    assert text_lines(path) == []


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "latin.txt"
    path.write_bytes("grün".encode("latin1"))
    with pytest.raises(WorkbenchError, match="is not UTF-8 at byte 2"):
        text_lines(path)
    with pytest.raises(WorkbenchError, match="INPUT is a text file"):
        text_lines(tmp_path)


def test_an_image_is_no_input_and_its_command_is_named(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_bytes(b"\xff\xd8")
    with pytest.raises(WorkbenchError, match=r"photo\.jpg is an image, .* workbench predict caption RUN .*photo\.jpg"):
        input_corpus(tmp_path / "photo.jpg")
