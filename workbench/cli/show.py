"""The command `workbench show`: looking before training."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from workbench.options.bounds import Assignment, Count, Location, Seed
from workbench.options.command import Trust
from workbench.recipe.reading import load_recipe
from workbench.tasks.needs import check_corpora
from workbench.terminal import Terminal


def show(
    target: Annotated[Location, typer.Argument(help="A corpus (folder or URL), or with --batch a recipe.")],
    overrides: Annotated[
        list[Assignment] | None, typer.Argument(help="With --batch: key=value.", metavar="KEY=VALUE")
    ] = None,
    batch: Annotated[bool, typer.Option("--batch", help="The first micro-batch as the model will see it.")] = False,
    samples: Annotated[Count, typer.Option(help="How many records or sequences to print.")] = 3,
    seed: Annotated[Seed, typer.Option(help="Which records of a corpus.")] = 0,
    trust: Trust = False,
) -> None:
    """Show a corpus (counts, fields, previews), or the first micro-batch of a recipe.

    `workbench show PICTURE RUN CORPUS` draws a picture of a run: attention, alignment or neighbours;
    `workbench show PICTURE --help` tells more.

    Examples:

      workbench show corpora/wiki

      workbench show bert tasks.text.corpora=[corpora/notes] --batch
    """
    if batch:
        show_batch(target, overrides or [], samples, trust=trust)
        return
    from workbench.cli.corpora import show as show_corpus

    show_corpus(target, samples, seed)


def show_batch(recipe_name: str, overrides: list[str], samples: int, *, trust: bool = False) -> None:
    """Print the first micro-batch of each task: tokens, masks, entities, branches, boxes, labels."""
    recipe = load_recipe(recipe_name, overrides, trust=trust)
    check_corpora(recipe)
    from workbench.cli.batch_view import sequence_view  # torch takes seconds, and a corpus is shown without
    from workbench.training.readers import first_batches

    tokenizer, tasks, batches = first_batches(recipe)
    console = Terminal()
    for name, micro in batches.items():
        objectives = {placed.name: placed.objective for placed in tasks[name].objectives}
        for view, contents in micro.views.items():
            rows = ", ".join(f"{s}: {stream.rows} rows" for s, stream in contents.streams.items())
            counts = ", ".join(f"{n}: {c:g}" for n, c in micro.counts.items())
            console.print(
                f"[bold]task {escape(name)}[/], view {escape(view)}: {contents.size} sequences; {rows}; labels {counts}"
            )
            for reason, count in micro.dropped.items():
                console.print(f"  [yellow]dropped[/] {escape(reason)}: {count}")
            for i in range(min(samples, contents.size)):
                console.print(sequence_view(contents, i, tokenizer, objectives))
