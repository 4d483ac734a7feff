"""The benchmark of linking times the linker that commands use, and its page names the version that was timed."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.linking import MEASURED, checked
from kg.linking.linker import Linker
from workbench.core.errors import WorkbenchError

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_of_linking_names_the_version_that_was_timed() -> None:
    page = (ROOT / "docs/results/linking.md").read_text(encoding="utf-8")
    assert MEASURED in page, "measure linking anew (benchmarks.linking) and write the numbers and the version there"


def test_another_linker_than_the_one_of_the_command_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    linker = Linker.from_names([("Oslo", "Q585", 1.0)])
    assert checked(linker, ["in Oslo", "Oslo and Oslo"]) == 3
    monkeypatch.setattr("pipelines.stages.entity_links.LinkEntities._spans", lambda *_: [])
    with pytest.raises(WorkbenchError, match="finds other links than `prepare link` in 'in Oslo'"):
        checked(linker, ["in Oslo"])
