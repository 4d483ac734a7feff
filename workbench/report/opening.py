"""What stands at the head of a page: the story of its runs, in words and small tables, before all results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from workbench.errors import WorkbenchError
from workbench.report.html import Cell, escape, number, table


@dataclass(frozen=True)
class Chapter:
    """A title, a small table (its first column names the rows), and paragraphs below it."""

    title: str
    text: list[str]
    head: list[str] = field(default_factory=list)
    rows: list[list[str | int | float]] = field(default_factory=list)


_CHAPTERS = TypeAdapter(list[Chapter])


def read_opening(path: Path) -> list[Chapter]:
    """The chapters in a JSON file.

    Raises:
        WorkbenchError: no such file, or another content.
    """
    try:
        return _CHAPTERS.validate_json(path.read_bytes())
    except OSError as error:
        raise WorkbenchError(f"{path}: cannot be read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise WorkbenchError(
            f"{path}: {where}: {first['msg']}; an opening is JSON: a list of chapters, each with title, text (a list "
            "of paragraphs) and, with a table, head and rows"
        ) from error


def opening(chapters: Sequence[Chapter]) -> str:
    """The chapters as HTML."""
    return f'<section class="opening">{"".join(map(_chapter, chapters))}</section>' if chapters else ""


def _chapter(chapter: Chapter) -> str:
    words = "".join(f"<p>{escape(paragraph)}</p>" for paragraph in chapter.text)
    rows = [("", [("name", escape(row[0])), *(_cell(value) for value in row[1:])]) for row in chapter.rows if row]
    shown = table(chapter.head, rows) if rows else ""
    return f'<section class="panel"><h2>{escape(chapter.title)}</h2>{words}{shown}</section>'


def _cell(value: str | int | float) -> Cell:
    """A number, or text; text that begins with a digit (0.38 / 0.69) stands like a number."""
    shown = number(value) if isinstance(value, int | float) else escape(value)
    return ("n" if shown[:1].isdigit() else "", shown)
