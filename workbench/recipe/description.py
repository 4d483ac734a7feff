"""A recipe in words: its stack, its objectives, the data that it needs, and the command that runs it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from workbench.recipe.recipe_listing import expected, stack
from workbench.recipe.spec import ComponentSpec, Recipe

LINES = 100


def about(recipe: Recipe, called: str, sizes: list[str]) -> Iterator[tuple[str, str]]:
    """The properties of a recipe, as names and values.

    Args:
        called: the recipe's name on the command line.
        sizes: the names of its sizes.
    """
    yield "recipe", f"{recipe.name} ({recipe.kind})"
    if recipe.description:
        yield "about", recipe.description
    if recipe.paper is not None:
        yield "paper", f"{recipe.paper.title} {recipe.paper.url}".strip()
    if sizes:
        yield "sizes", ", ".join(sizes)
    yield "stack", stack(recipe)
    for name, network in recipe.networks.items():
        widths = {stream: spec.get("hidden_size", "as in the file") for stream, spec in network.streams.items()}
        of = "" if len(recipe.networks) == 1 else f" of {name}"
        yield f"width{of}", ", ".join(f"{stream} {size}" for stream, size in widths.items())
        if network.init_from:
            yield "starts from", ", ".join(entry.weights for entry in network.init_from)
    for name, task in recipe.tasks.items():
        objectives = ", ".join(_named("objective", spec) for spec in task.objectives)
        yield f"task {name}", f"{objectives}; sequences: {_named('builder', task.sequence.builder)}"
        yield "corpora", f"{', '.join(task.corpora)} (tasks.{name}.corpora=[...])"
    train = recipe.train
    yield "training", f"{train.max_steps:,} steps of {train.global_batch_size:,} samples, lr {train.lr:g}"
    if recipe.tokenizer is not None:
        yield "tokenizer", f"{recipe.tokenizer} (tokenizer=...)"
    found = expected(recipe)
    if found:
        yield "needs", ", ".join(found)
    if recipe.vars:
        yield "variables", ", ".join(f"vars.{name}={_short(value)}" for name, value in recipe.vars.items())
    yield "command", f"workbench pretrain {called}"


def _named(kind: str, spec: str | ComponentSpec) -> str:
    return spec if isinstance(spec, str) else str(spec[kind])


def _short(value: Any) -> str:
    text = "{...}" if isinstance(value, Mapping) else str(value)
    return text if len(text) <= LINES else f"{text[:LINES]}..."
