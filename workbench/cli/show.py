"""The command `workbench show`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from workbench.cli.recipes import print_recipe
from workbench.core.errors import WorkbenchError
from workbench.core.files.stores import Store
from workbench.core.files.urls import is_url
from workbench.core.options.bounds import Assignment, Count, Place, Seed
from workbench.core.options.command import Trust
from workbench.core.packages import WEIGHTS, located
from workbench.core.terminal import Terminal
from workbench.corpora.manifest import FILE_NAME
from workbench.interop.checkpoint_files import find_files
from workbench.interop.checkpoint_recipe import is_checkpoint_folder, recipe_named
from workbench.pretraining.task_corpora import check_corpora, places_named
from workbench.recipe.reading import find_recipe
from workbench.runs.names import is_run
from workbench.runs.progress import progress_of
from workbench.runs.stored_run import NAMED, fetched_run, read_snapshot


def show(
    target: Annotated[
        Place, typer.Argument(help="A corpus (folder or URL), a run, a recipe, or a Hugging Face folder.")
    ],
    overrides: Annotated[
        list[Assignment] | None, typer.Argument(help="Changes to a recipe, as key=value.", metavar="KEY=VALUE")
    ] = None,
    batch: Annotated[
        bool, typer.Option("--batch", help="Show the first micro-batch as the model receives it.")
    ] = False,
    samples: Annotated[Count, typer.Option(help="How many records or sequences to print.")] = 3,
    seed: Annotated[Seed, typer.Option(help="Which records of a corpus.")] = 0,
    trust: Trust = False,
) -> None:
    """Show a corpus (counts, fields, previews), a run (recipe, progress, results), a recipe or a checkpoint.

    With --batch, show the first micro-batch of a recipe or checkpoint. `workbench show FIGURE RUN CORPUS` draws a
    figure of a run: attention, alignment or neighbours; `workbench show FIGURE --help` shows its options.

    Examples:

      workbench show corpora/wiki

      workbench show runs/bert

      workbench show hf/bert

      workbench show bert tasks.text.corpora=[corpora/notes] --batch
    """
    if batch:
        show_batch(target, overrides or [], samples, trust=trust)
        return
    place = Path(target)
    if target.startswith(NAMED) or is_run(place) or (is_url(target) and read_snapshot(Store(target)) is not None):
        for name, value in progress_of(fetched_run(target)):
            Terminal().print(f"[bold]{escape(name)}[/]  {escape(value)}", highlight=False)
    elif _is_recipe(target):
        print_recipe(recipe_named(target, overrides or [], trust=trust), target)
    elif not is_url(target) and not (place / FILE_NAME).is_file():
        there = "it has neither corpus.json nor recipe.yaml" if place.exists() else "there is no such file or folder"
        raise WorkbenchError(
            f"{target} is no corpus, run, recipe or Hugging Face folder: {there}. 'workbench recipes' lists the recipes"
        )
    else:
        from workbench.cli.corpora import show as show_corpus

        show_corpus(target, samples, seed)


def _is_recipe(target: str) -> bool:
    """Whether the target is a recipe or a checkpoint, and not a corpus."""
    if is_url(target) or (Path(target) / FILE_NAME).is_file():
        return False
    if is_checkpoint_folder(target):
        return find_files(located(target, WEIGHTS)) is not None
    try:
        return bool(find_recipe(target))
    except WorkbenchError:
        return target.endswith((".yaml", ".yml"))


def show_batch(recipe_name: str, overrides: list[str], samples: int, *, trust: bool = False) -> None:
    """Print the first micro-batch of each task: tokens, masks, entities, branches, boxes, labels."""
    recipe = recipe_named(recipe_name, overrides, trust=trust)
    check_corpora(recipe)
    from workbench.cli.batch_view import sequence_view  # torch takes seconds; showing a corpus does not need it
    from workbench.training.data import first_batches

    with places_named(recipe):
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
