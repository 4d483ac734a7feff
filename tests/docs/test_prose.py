"""Pages that people write are in short sentences: 18 words on average, code blocks and tables left out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pipelines.reference import FOLDERS

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
LIMIT = 18.0
"""Words of a sentence, as the mean of a page."""
GENERATED = (*FOLDERS, "samples", "gallery")
"""Pages, or folders of pages, that `make pages` writes."""
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


def generated(page: Path) -> bool:
    return page.is_relative_to(DOCS) and page.relative_to(DOCS).parts[0].removesuffix(".md") in GENERATED


WRITTEN = [page.relative_to(ROOT).as_posix() for page in PAGES if not generated(page)]


def sentences(text: str) -> list[list[str]]:
    """The words of each sentence. A span of code, or a link, counts as the words that are read."""
    text = re.sub(r"^(```|~~~).*?^\1[^\n]*$|<!--.*?-->", "\n\n", text, flags=re.MULTILINE | re.DOTALL)
    kept = []
    for line in text.splitlines():
        left_out = line.lstrip().startswith("|") or line.startswith(("    ", "#", "<div>"))  # tables, code, headings
        item = re.match(r"\s*(?:[-*]|\d+\.) ", line)
        kept.append("" if left_out else f"\n\n{line[item.end() :]}" if item else line)
    found = []
    for paragraph in re.split(r"\n\s*\n", "\n".join(kept)):
        read = re.sub(r"`[^`]+`", "code", paragraph)
        read = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", read)
        read = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", read)
        for sentence in re.split(r"(?<=[.!?])[)\"*]*\s+", read):
            words = [word for word in sentence.split() if re.search(r"\w", word)]
            if words:
                found.append(words)
    return found


def mean_length(text: str) -> float:
    lengths = [len(words) for words in sentences(text)]
    return sum(lengths) / max(len(lengths), 1)


@pytest.mark.parametrize("page", WRITTEN)
def test_sentences_are_short(page: str) -> None:
    mean = mean_length((ROOT / page).read_text("utf-8"))
    assert mean <= LIMIT, f"{page}: {mean:.1f} words a sentence on average; {LIMIT:g} are allowed (docs/STYLE.md)"


def test_what_a_sentence_is() -> None:
    text = (
        "# A heading of many words\n\nOne two `three of code` [four](five.md). Six seven, of version 2.11 (eight.)\n"
        "\n| a | table |\n|---|---|\n\n    indented code\n\n- nine\n- ten eleven\n\n```bash\ncode block\n```\n"
    )
    assert [len(words) for words in sentences(text)] == [4, 6, 1, 2]
    assert mean_length(text) == 13 / 4
    assert mean_length("") == 0
