"""The pages of results: each has its date, machine and commands, and one table has the headline numbers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"
INDEX = (RESULTS / "README.md").read_text("utf-8")
PAGES = sorted(path.name for path in RESULTS.glob("*.md") if path.name != "README.md")


def headlines() -> list[str]:
    """The rows of the table between its two marks."""
    table = INDEX.partition("<!-- headline numbers -->")[2].partition("<!-- end of headline numbers -->")[0]
    return [line for line in table.splitlines() if line.startswith("| ")][1:]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_its_question_date_machine_and_commands(page: str) -> None:
    text = (RESULTS / page).read_text("utf-8")
    assert re.match(r"# .+\?\n", text), "the title is a question"
    assert re.search(r"^Date: \d{4}-\d{2}\. Machine: ", text, re.MULTILINE)
    assert "```text\n" in text
    assert len(text.splitlines()) < 300
    assert f"({page})" in INDEX


def test_the_headlines_are_few_and_lead_to_their_pages() -> None:
    rows = headlines()
    assert 10 <= len(rows) <= 20
    for row in rows:
        assert re.search(r"\]\(([\w-]+\.md)(#[\w-]+)?\) \|$", row), row


def test_numbers_of_the_headlines_are_on_their_pages() -> None:
    """Numbers with a decimal point are copied from the page, never computed for the table."""
    missing = []
    for row in headlines():
        page = (RESULTS / re.findall(r"\]\(([\w-]+\.md)", row)[0]).read_text("utf-8")
        numbers = re.findall(r"\d*\.\d+", row.split("|")[2])
        missing += [(number, row) for number in numbers if number.removeprefix("0") not in page]
    assert not missing
