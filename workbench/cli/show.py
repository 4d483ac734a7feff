"""The command `workbench show`: looking before training."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer
from rich.console import Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from workbench.options.bounds import Assignment, Count, Location, Seed
from workbench.options.command import Trust
from workbench.recipe.reading import load_recipe
from workbench.terminal import Terminal
from workbench.text.tokenizer import Tokenizer

if TYPE_CHECKING:  # torch takes seconds, and a corpus is shown without
    from workbench.sequences.batch import Batch, Stream

BRANCH_STYLES = ("", "cyan", "magenta", "blue", "yellow")


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
    """Print the first micro-batch of each task: tokens, masks, entities, branches, boxes."""
    recipe = load_recipe(recipe_name, overrides, trust=trust)
    from workbench.training.readers import first_batches

    tokenizer, batches = first_batches(recipe)
    console = Terminal()
    for name, micro in batches.items():
        for view, contents in micro.views.items():
            rows = ", ".join(f"{s}: {stream.rows} rows" for s, stream in contents.streams.items())
            counts = ", ".join(f"{n}: {c:g}" for n, c in micro.counts.items())
            console.print(
                f"[bold]task {escape(name)}[/], view {escape(view)}: {contents.size} sequences; {rows}; labels {counts}"
            )
            for reason, count in micro.dropped.items():
                console.print(f"  [yellow]dropped[/] {escape(reason)}: {count}")
            for i in range(min(samples, contents.size)):
                console.print(sequence_view(contents, i, tokenizer))


def sequence_view(batch: Batch, i: int, tokenizer: Tokenizer | None) -> Group:
    """One sequence of a batch for the terminal.

    Masked and replaced tokens stand in red with what is to be predicted behind them; injected branches in colour;
    a token with an entity is underlined; the image stream is told by its rows and its first boxes.
    """
    parts: list[Text | Table] = [Text(f"  {batch.keys[i]}", style="dim")]
    if "text" in batch.streams:
        parts.append(_text_view(batch, i, tokenizer))
    for name, stream in batch.streams.items():
        if name != "text" and stream.lengths[i]:
            parts.append(_rows_view(name, stream, i))
    return Group(*parts)


def _text_view(batch: Batch, i: int, tokenizer: Tokenizer | None) -> Text:
    stream = batch.streams["text"]
    start = sum(stream.lengths[:i])
    wanted = dict(_labels(batch))
    entities = _entity_tokens(batch)
    line = Text("  ")
    for row in range(start, start + stream.lengths[i]):
        token = int(stream.fields["input_ids"][row])
        branch = int(stream.fields["branch"][row]) if "branch" in stream.fields else 0
        style = BRANCH_STYLES[branch % len(BRANCH_STYLES)] + (" underline" if row in entities else "")
        line.append(_name(token, tokenizer), style="bold red" if row in wanted else style.strip())
        if row in wanted:
            line.append(f"({_name(wanted[row], tokenizer)})", style="green")
        line.append(" ")
    return line


def _labels(batch: Batch) -> Iterator[tuple[int, int]]:
    """(row of the text stream, wanted token) of every objective that predicts tokens."""
    for targets in batch.targets.values():
        rows, labels = targets.get("rows"), targets.get("labels")
        if rows is not None and labels is not None and len(rows) == len(labels) and not labels.is_floating_point():
            yield from zip(rows.tolist(), labels.tolist(), strict=True)


def _entity_tokens(batch: Batch) -> set[int]:
    entity = batch.streams.get("entity")
    if entity is None:
        return set()
    present = entity.fields["entity_ids"] > 0
    return set(entity.fields["token"][present].tolist())


def _name(token: int, tokenizer: Tokenizer | None) -> str:
    return str(token) if tokenizer is None else tokenizer.tokens([token])[0]


def _rows_view(name: str, stream: Stream, i: int) -> Text:
    start = sum(stream.lengths[:i])
    rows = slice(start, start + stream.lengths[i])
    facts = [f"{stream.lengths[i]} rows"]
    if "entity_ids" in stream.fields:
        facts.append("table rows " + " ".join(str(e) for e in stream.fields["entity_ids"][rows].tolist()))
    if "boxes" in stream.fields:
        boxes = stream.fields["boxes"][rows][:3].numpy()
        facts.append("boxes " + " ".join(np.array2string(b, precision=2, floatmode="fixed") for b in boxes) + " ...")
    if "masked" in stream.fields:
        facts.append(f"{int(stream.fields['masked'][rows].sum())} masked")
    return Text(f"  {name}: {', '.join(facts)}", style="dim")
