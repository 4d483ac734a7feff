"""The command `workbench recipes`: the systems that the workbench ships."""

from __future__ import annotations

from typing import Annotated

from rich.markup import escape
from rich.table import Table

from workbench.cli.page import as_page
from workbench.recipe.listing import families, markdown
from workbench.recipe.reading import shipped
from workbench.recipe.sizes import sizes_of
from workbench.terminal import Terminal


def list_recipes(
    as_markdown: Annotated[bool, as_page("systems.md", markdown)] = False,
) -> None:
    """List the recipes that the workbench ships, family by family: name, paper, one line each.

    Example:

      workbench recipes
    """
    console = Terminal()
    for family, recipes in families().items():
        console.print(f"\n[bold]{family.replace('_', '-')}[/]")
        table = Table(box=None, pad_edge=False, show_header=False)
        for recipe in recipes:
            paper = f"\n[dim]{escape(recipe.paper.title)} ({escape(recipe.paper.url)})[/]" if recipe.paper else ""
            sizes = " ".join(f"{recipe.name}-{size}" for size in sizes_of(shipped()[recipe.name]))
            table.add_row(
                f"  [bold]{recipe.name}[/]", escape(recipe.description) + paper + (f"\n{sizes}" if sizes else "")
            )
        console.print(table)
