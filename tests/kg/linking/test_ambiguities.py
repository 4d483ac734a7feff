"""Reports of a linker about its names before it is used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kg.linking.linker import Linker
from pipelines.commands.knowledge.linker import linker as prepare_linker
from workbench.core.options.command import command

NAMES = [
    ("New York City", "city"),
    ("New York", "state"),
    ("York", "york"),
    ("Yorkshire", "shire"),  # has York inside, but not from boundary to boundary
    ("NYC", "city"),
    ("NYC town", "city"),  # its own name inside
    ("York", "other"),
    ("上海市", "city"),
    ("上海", "sea"),
]
SEVERAL, INSIDE = "names of several entities", "names with another entity's name inside, which is not found there"


def test_names_that_overlap_or_are_ambiguous_are_counted() -> None:
    linker = Linker.from_names([(name, entity, 1.0) for name, entity in NAMES])
    assert linker.ambiguities == {SEVERAL: 1, INSIDE: 3}, "New York City, New York, 上海市"
    found = [(text, linker.link(text)) for text in ("New York City", "上海市")]
    assert [links[0][2] for _, links in found if len(links) == 1] == ["city", "city"], "the one inside is not found"


def test_they_are_reported_and_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "names.tsv").write_text("".join(f"{name}\t{entity}\t1\n" for name, entity in NAMES))
    command(prepare_linker)(output=tmp_path / "linker", names=tmp_path / "names.tsv")
    reported = " ".join(capsys.readouterr().err.split())
    assert "spellings" in reported
    assert "inside, which is not found there" in reported
    assert json.loads((tmp_path / "linker/linker.json").read_text())["ambiguities"] == {SEVERAL: 1, INSIDE: 3}
