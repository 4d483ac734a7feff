"""The command `workbench recipes`: the systems that the workbench ships."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from workbench.cli.page import as_page
from workbench.errors import WorkbenchError
from workbench.files.drafts import write_text
from workbench.options.bounds import Name
from workbench.options.command import Trust
from workbench.recipe.drawing import drawing
from workbench.recipe.listing import families, markdown, stack
from workbench.recipe.reading import load_recipe, shipped
from workbench.recipe.sizes import sizes_of
from workbench.runs.outputs import OutputFile
from workbench.terminal import Terminal


def list_recipes(
    as_markdown: Annotated[bool, as_page("systems.md", markdown)] = False,
    draw: Annotated[
        Name | None, typer.Option(metavar="RECIPE", help="Draw what this recipe stacks, as SVG, instead.")
    ] = None,
    output: Annotated[
        OutputFile | None, typer.Option("--output", "-o", help="With --draw: where to; default: RECIPE.svg here.")
    ] = None,
    trust: Trust = False,
) -> None:
    """List the recipes that the workbench ships, family by family: name, paper, one line each. Or draw one of them, or
    one of yours: streams as columns, layers as boxes, who attends to whom.

    Examples:

      workbench recipes

      workbench recipes --draw lxmert

      workbench recipes --draw mine.yaml --output mine.svg
    """
    console = Terminal()
    if draw is not None:
        recipe = load_recipe(draw, trust=trust)
        path = output or Path(f"{recipe.name}.svg")
        write_text(path, drawing(recipe))
        console.print(f"{escape(str(path))}: {escape(stack(recipe))}", highlight=False)
        return
    if output is not None:
        raise WorkbenchError("--output is where a drawing goes; say of which recipe: --draw RECIPE")
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
