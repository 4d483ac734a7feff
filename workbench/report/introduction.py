"""The opening of a report: figures, short texts and small tables before the results."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from workbench.core.errors import WorkbenchError
from workbench.report.html import Cell, escape, number, table


@dataclass(frozen=True)
class Chapter:
    """A title, a figure, paragraphs and a small table whose first column names the rows.

    `figure` is an SVG drawing; in a JSON file, the name of an SVG file in the same folder.
    """

    title: str
    text: list[str]
    head: list[str] = field(default_factory=list)
    rows: list[list[str | int | float]] = field(default_factory=list)
    figure: str = ""


_CHAPTERS = TypeAdapter(list[Chapter])


def read_opening(path: Path) -> list[Chapter]:
    """The chapters in a JSON file.

    Raises:
        WorkbenchError: there is no such file, it has another content, or a figure of it is no SVG file.
    """
    try:
        chapters = _CHAPTERS.validate_json(path.read_bytes())
    except OSError as error:
        raise WorkbenchError(f"{path}: cannot be read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise WorkbenchError(
            f"{path}: {where}: {first['msg']}; an opening is JSON: a list of chapters, each with title, text (a list "
            "of paragraphs), with a table head and rows, and with a figure the name of an SVG file"
        ) from error
    return [replace(c, figure=_read_figure(path.parent / c.figure)) if c.figure else c for c in chapters]


def _read_figure(path: Path) -> str:
    try:
        drawing = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise WorkbenchError(f"{path}: the figure cannot be read: {error}; draw it again, as SVG") from error
    if "<svg" not in drawing[:1000]:
        raise WorkbenchError(f"{path}: the figure is no SVG; allowed: an SVG file; convert it, or leave `figure` out")
    return drawing


def opening(chapters: Sequence[Chapter]) -> str:
    """The chapters as HTML."""
    return f'<section class="opening">{"".join(map(_chapter, chapters))}</section>' if chapters else ""


def _chapter(chapter: Chapter) -> str:
    words = "".join(f"<p>{escape(paragraph)}</p>" for paragraph in chapter.text)
    rows = [("", [("name", escape(row[0])), *(_cell(value) for value in row[1:])]) for row in chapter.rows if row]
    shown = table(chapter.head, rows) if rows else ""
    figure = _embedded(chapter.figure, chapter.title) if chapter.figure else ""
    return f'<section class="panel"><h2>{escape(chapter.title)}</h2>{figure}{words}{shown}</section>'


def _embedded(drawing: str, title: str) -> str:
    """An SVG as an image, in which no script runs and nothing is fetched."""
    data = base64.b64encode(drawing.encode()).decode("ascii")
    return f'<p class="figure"><img alt="{escape(title)}" src="data:image/svg+xml;base64,{data}"></p>'


def _cell(value: str | int | float) -> Cell:
    """A number, or text; text that begins with a digit (0.38 / 0.69) is aligned like a number."""
    shown = number(value) if isinstance(value, int | float) else escape(value)
    return ("n" if shown[:1].isdigit() else "", shown)
