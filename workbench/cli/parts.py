"""The command `workbench parts`: what a recipe can name."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from workbench.cli.page import as_page
from workbench.errors import unknown
from workbench.options.bounds import Word
from workbench.parts.kinds import KINDS
from workbench.parts.listing import kind_line, markdown, parts
from workbench.terminal import Terminal


def list_parts(
    kind: Annotated[Word | None, typer.Argument(help="Only the parts of this kind, with their options.")] = None,
    as_markdown: Annotated[bool, as_page("parts.md", markdown)] = False,
) -> None:
    """List the parts that recipes can name, with a line each; of one kind with their options.

    Examples:

      workbench parts

      workbench parts layer
    """
    if kind is not None and kind not in KINDS:
        raise unknown("kind of part", kind, sorted(KINDS))
    console = Terminal()
    for shown in [kind] if kind is not None else sorted(KINDS):
        console.print(f"\n[bold]{shown}[/]  {escape(kind_line(shown).replace('`', ''))}")
        table = Table(box=None, pad_edge=False, show_header=kind is not None)
        for column in ("part", "what it does") if kind is None else ("part", "option", "allowed", "default"):
            table.add_column(column, overflow="fold", no_wrap=column == "part")
        for part in parts(shown):
            if kind is None:
                table.add_row(f"  [bold]{part.name}[/]", escape(part.line))
                continue
            table.add_row(f"[bold]{part.name}[/]", "", escape(part.line), "")
            for option in part.options:
                table.add_row("", option.name, escape(option.allowed), escape(option.default))
        console.print(table)
