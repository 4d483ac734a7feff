"""The command `workbench components`: the components that a recipe can name."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from workbench.components.component_index import component_lines
from workbench.components.component_listing import kind_line, named_in
from workbench.components.kinds import KINDS
from workbench.core.errors import WorkbenchError, unknown
from workbench.core.options.bounds import LocalPlace, Word
from workbench.core.options.command import Trust
from workbench.core.terminal import Terminal
from workbench.recipe.reading import load_recipe
from workbench.recipe.trees import as_tree


def list_components(
    kind: Annotated[Word | None, typer.Argument(help="Only the components of this kind, with their options.")] = None,
    recipe: Annotated[
        LocalPlace | None,
        typer.Option(help="List the components that this recipe names by import path, such as mine:MyLayer."),
    ] = None,
    trust: Trust = False,
) -> None:
    """List the components that recipes can name, one line each; with KIND also their options.

    Examples:

      workbench components

      workbench components layer

      workbench components transform --recipe mine.yaml --trust
    """
    if kind is not None and kind not in KINDS:
        raise unknown("kind of component", kind, sorted(KINDS))
    own = None if recipe is None else _named_by(recipe, kind, trust)
    console = Terminal()
    if own is None and kind is None:
        _print_index(console)
        return
    from workbench.components.component_listing import component_entries  # imports the components, and so torch

    for shown in [kind] if kind is not None else sorted(KINDS if own is None else own):
        _print_kind(console, shown)
        table = Table(box=None, pad_edge=False, show_header=kind is not None)
        for column in ("component", "what it does") if kind is None else ("component", "option", "allowed", "default"):
            table.add_column(column, overflow="fold", no_wrap=column == "component")
        for component in component_entries(shown, None if own is None else own[shown]):
            if kind is None:
                table.add_row(f"  [bold]{component.name}[/]", escape(component.line))
                continue
            table.add_row(f"[bold]{component.name}[/]", "", escape(component.line), "")
            for option in component.options:
                table.add_row("", option.name, escape(option.allowed), escape(option.default))
        console.print(table)


def _print_index(console: Terminal) -> None:
    """The components of all kinds, one line each."""
    for kind in sorted(KINDS):
        _print_kind(console, kind)
        table = Table(box=None, pad_edge=False, show_header=False)
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for name, line in component_lines(kind):
            table.add_row(f"  [bold]{name}[/]", escape(line))
        console.print(table)


def _print_kind(console: Terminal, kind: str) -> None:
    console.print(f"\n[bold]{kind}[/]  {escape(f'{KINDS[kind].meaning} {kind_line(kind)}'.replace('`', ''))}")


def _named_by(recipe: str, kind: str | None, trust: bool) -> dict[str, list[str]]:
    """The import paths of the components that a recipe names, by kind.

    Raises:
        WorkbenchError: the recipe names none of the kind, or is wrong or not trusted.
    """
    named = named_in(as_tree(load_recipe(recipe, trust=trust)))
    if not named or kind not in (None, *named):
        raise WorkbenchError(
            f"{recipe} names no {kind or 'component'} by import path (found: {', '.join(sorted(named)) or 'none'}); "
            "leave out --recipe to list the components of the workbench"
        )
    return named
