"""The command `workbench recipes`: the systems that the workbench ships, one of them in detail, or a checkpoint's."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal, get_args

import typer
from rich.markup import escape
from rich.table import Table

from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import write_text
from workbench.core.options.bounds import Assignment, LocalPlace, Name, Word
from workbench.core.options.command import Trust
from workbench.core.terminal import Terminal
from workbench.recipe.description import about
from workbench.recipe.drawing import drawing
from workbench.recipe.headers import headers
from workbench.recipe.reading import find_recipe, shipped
from workbench.recipe.recipe_listing import in_order, stack
from workbench.recipe.sizes import sizes_of
from workbench.recipe.spec import Recipe
from workbench.runs.output_places import OutputFile

Kind = Literal["text", "knowledge", "vision-language"]


def list_recipes(
    name: Annotated[
        LocalPlace | None,
        typer.Argument(
            metavar="[RECIPE]",
            help="Show this recipe in detail: a name, a YAML file or a checkpoint. Or list a kind: text, knowledge, "
            "vision-language.",
        ),
    ] = None,
    overrides: Annotated[
        list[Assignment] | None, typer.Argument(help="Changes to RECIPE, as key=value.", metavar="KEY=VALUE")
    ] = None,
    kind: Annotated[Kind | None, typer.Option(help="Only the recipes of this kind.")] = None,
    with_words: Annotated[
        list[Word] | None,
        typer.Option(
            "--with",
            "--filter",
            metavar="WORD",
            help="Only the recipes that have this word: a component, an objective, a year, a word of the title. "
            "Repeatable: all of them.",
        ),
    ] = None,
    checkpoint_folder: Annotated[
        LocalPlace | None,
        typer.Option(
            "--from", metavar="FOLDER", help="Write the recipe that continues pretraining from a Hugging Face folder."
        ),
    ] = None,
    draw: Annotated[Name | None, typer.Option(metavar="RECIPE", help="Draw the layers of this recipe as SVG.")] = None,
    output: Annotated[
        OutputFile | None, typer.Option("--output", "-o", help="The file of --draw (default: RECIPE.svg) or --from.")
    ] = None,
    trust: Trust = False,
) -> None:
    """List the recipes that the workbench ships, family by family: name, paper, one line each.

    With RECIPE, show one in detail. With --draw, draw one, also your own or a checkpoint's: streams are columns, layers
    are boxes, arrows show attention. With --from, write the recipe that continues pretraining from a checkpoint
    (Hugging Face's config.json and model.safetensors).

    Examples:

      workbench recipes knowledge

      workbench recipes --with distil --with 2019

      workbench recipes k-bert

      workbench recipes --draw lxmert

      workbench recipes --draw mine.yaml --output mine.svg

      workbench recipes --from hf/bert > mine.yaml
    """
    if output is not None and draw is None and checkpoint_folder is None:
        raise WorkbenchError("--output is the file of a drawing or a recipe; add --draw RECIPE or --from FOLDER")
    if (
        draw is None
        and checkpoint_folder is None
        and (name is None or (name in get_args(Kind) and name not in shipped()))
    ):
        _list(name or kind, with_words or [])
        return
    from workbench.interop.checkpoint_recipe import checkpoint_recipe_yaml, recipe_named  # slow to import

    if draw is not None:
        recipe = recipe_named(draw, trust=trust)
        path = output or Path(f"{recipe.name}.svg")
        write_text(path, drawing(recipe))
        Terminal().print(f"{escape(str(path))}: {escape(stack(recipe))}", highlight=False)
    elif checkpoint_folder is not None:
        given = [text for text in (name, *(overrides or [])) if text is not None]
        if name is not None and "=" not in name:
            raise WorkbenchError(f"--from {checkpoint_folder} writes the recipe of that folder; leave out {name!r}")
        text = checkpoint_recipe_yaml(checkpoint_folder, given, trust=trust)
        sys.stdout.write(text) if output is None else write_text(output, text)
    elif name is not None:
        print_recipe(recipe_named(name, overrides or [], trust=trust), name)


def print_recipe(recipe: Recipe, called: str) -> None:
    """Print a recipe in detail; `called` is its name on the command line."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in about(recipe, called, _sizes(called)):
        table.add_row(escape(name), escape(value))
    Terminal().print(table)


def _sizes(called: str) -> list[str]:
    """The names of the other sizes of a recipe; a checkpoint has none."""
    if called not in shipped() and not called.endswith((".yaml", ".yml")):
        return []
    path, _ = find_recipe(called)
    return [f"{path.stem}-{size}" for size in sizes_of(path)]


def _list(kind: str | None, words: list[str]) -> None:
    """The recipes of a kind that have all words, family by family: description, paper with its year, sizes."""
    wanted = [header for header in headers() if kind in (None, header.kind) and header.has(words)]
    if not wanted:
        raise WorkbenchError(
            f"no recipe{'' if kind is None else f' of the kind {kind}'} has {' and '.join(map(repr, words))}; "
            "`workbench recipes` lists all"
        )
    console = Terminal()
    for family in in_order({header.family for header in wanted}):
        console.print(f"\n[bold]{family.replace('_', '-')}[/]")
        table = Table(box=None, pad_edge=False, show_header=False)
        table.add_column(style="bold", no_wrap=True)
        table.add_column(overflow="fold")
        for header in wanted:
            if header.family == family:
                notes = [f"[dim]{escape(header.paper)}[/]"] if header.paper else []
                notes += [escape(f"also {' '.join(header.sizes)}")] if header.sizes else []
                table.add_row(f"  {header.name}", "\n".join([escape(header.description), *notes]))
        console.print(table)
    console.print(
        "\n'workbench recipes RECIPE' shows one in detail, 'workbench pretrain RECIPE' trains it.", markup=False
    )
