"""Finds the objective of a run that can generate text."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from workbench.components.calls import call
from workbench.core.errors import WorkbenchError, unknown
from workbench.evaluation.scoring.image_sequences import medium_of
from workbench.pretraining.assembly import tasks_of
from workbench.pretraining.objective import CONTINUATION, Continuation
from workbench.pretraining.task import Task, TaskObjective
from workbench.recipe.reading import load_recipe, shipped
from workbench.text.tokenizer import Tokenizer

ADVICE = (
    "pretrain it with one that does (clm with a builder of `visibility: causal`, or mlm with one that has `prefix`), "
    "or take its vectors (workbench encode)"
)


class Writer(NamedTuple):
    """An objective that predicts tokens one after another, in its task."""

    task: Task
    placed: TaskObjective
    continuation: Continuation


def find_writer(
    tasks: Iterable[Task],
    network: str | None = None,
    stream: str | None = None,
    advice: Callable[[], str] = lambda: ADVICE,
    objective: str | None = None,
) -> Writer:
    """The first objective that can, of those of a network and with a stream that grows where these are named.

    Args:
        tasks: of a run, in evaluation mode.
        advice: what to do where none can, for the message.
        objective: the name of the one that is meant, where several can.

    Raises:
        WorkbenchError: there is none, or several networks, streams or objectives could be meant.
    """
    each = [(task, placed) for task in tasks for placed in task.objectives]
    all_ = [(*one, call(one[1].objective, "continuation", CONTINUATION, one[0].builder)) for one in each]
    mine = [Writer(*found) for found in all_ if found[2] is not None and network in (None, found[1].network)]
    known = dict.fromkeys(writer.placed.name for writer in mine)
    if objective is not None and mine and objective not in known:
        raise unknown("objective", objective, known, "those that can generate text")
    mine = [writer for writer in mine if objective in (None, writer.placed.name)]
    if not mine:
        names = sorted({placed.name for _, placed in each})
        of = f"network {network!r}" if network else "run"
        raise WorkbenchError(
            f"this {of} cannot generate text: none of its objectives ({', '.join(names)}) predicts the "
            f"next token; {advice()}"
        )
    streams = {found.continuation.stream for found in mine}
    if stream is not None and stream not in streams:
        raise unknown("stream", stream, streams, "the streams that grow")
    mine = [found for found in mine if stream in (None, found.continuation.stream)]
    for option, found in (
        ("--network", {writer.placed.network for writer in mine}),
        ("--stream", {writer.continuation.stream for writer in mine}),
        ("--objective", {writer.placed.name for writer in mine}),
    ):
        if len(found) > 1:
            raise WorkbenchError(f"several can generate text: {', '.join(sorted(found))}; choose one: {option}")
    return mine[0]


def recipes_that_write(builder: str, tokenizer: Tokenizer | None) -> list[str]:
    """The recipes that ship, read captions of what a builder reads, and predict them token by token."""
    found = []
    for name in shipped():
        try:
            recipe = load_recipe(name)
            if medium_of(recipe).builder == builder:
                find_writer([task.evaluating() for task in tasks_of(recipe, tokenizer).values()])
                found.append(name)
        except WorkbenchError:  # it reads no such thing, or writes nothing
            continue
    return found
