"""A table of the terminal as HTML, for notebooks."""

from __future__ import annotations

from html import escape

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from workbench.core.local_copies import with_urls
from workbench.core.terminal import visible


def html_of(*tables: Table) -> str:
    """The tables one below the other, with their titles above and their captions beneath. All texts are escaped."""
    return "".join(map(_html, tables))


def _html(table: Table) -> str:
    sides = [f' style="text-align: {"right" if column.justify == "right" else "left"}"' for column in table.columns]
    heads = "".join(f"<th{side}>{_text(of.header)}</th>" for side, of in zip(sides, table.columns, strict=True))
    lines = zip(*(column.cells for column in table.columns), strict=True)
    rows = ("".join(f"<td{side}>{_text(cell)}</td>" for side, cell in zip(sides, line, strict=True)) for line in lines)
    title = f"<p><b>{_text(table.title)}</b></p>" if table.title else ""
    caption = f"<p><small>{_text(table.caption)}</small></p>" if table.caption else ""
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f"{title}<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>{caption}"


def _text(cell: RenderableType | None) -> str:
    """The words of a cell, whose markup is left out."""
    plain = Text.from_markup(cell).plain if isinstance(cell, str) else str(cell if cell is not None else "")
    return escape(visible(with_urls(plain)))
