"""docs/samples.md is what the schema says."""

from __future__ import annotations

from pathlib import Path

from workbench.corpora.schema import SCHEMA
from workbench.corpora.schema_page import page

PAGE = Path(__file__).resolve().parents[2] / "docs" / "samples.md"


def test_the_page_is_made_from_the_schema() -> None:
    text = PAGE.read_text("utf-8")
    assert text == page(), "run: make pages"
    assert all(f"| `{field.name}` |" in text for field in SCHEMA)
