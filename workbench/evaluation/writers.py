"""Which of a run's objectives can go on with a text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from workbench.errors import WorkbenchError, unknown
from workbench.parts.calls import call
from workbench.tasks.continuation import Continuation
from workbench.tasks.returns import CONTINUATION
from workbench.tasks.task import Task, TaskObjective

PREDICTS = "clm with a builder of `visibility: causal`, or mlm with one that has `prefix`"


class Writer(NamedTuple):
    """An objective that predicts tokens one after another, in its task."""

    task: Task
    placed: TaskObjective
    continuation: Continuation


def find_writer(tasks: Iterable[Task], network: str | None = None, stream: str | None = None) -> Writer:
    """The first objective that can, of those of a network and with a stream that grows where these are named.

    Args:
        tasks: of a run, in evaluation mode.

    Raises:
        WorkbenchError: there is none, or several networks or streams could be meant.
    """
    each = [(task, placed) for task in tasks for placed in task.objectives]
    all_ = [(*one, call(one[1].objective, "continuation", CONTINUATION, one[0].builder)) for one in each]
    mine = [Writer(*found) for found in all_ if found[2] is not None and network in (None, found[1].network)]
    if not mine:
        names = sorted({placed.name for _, placed in each})
        of = f"network {network!r}" if network else "run"
        raise WorkbenchError(
            f"this {of} cannot go on with a text: none of its objectives ({', '.join(names)}) predicts tokens one "
            f"after another; pretrain it with one that does ({PREDICTS}), or take its vectors (workbench encode)"
        )
    streams = {found.continuation.stream for found in mine}
    if stream is not None and stream not in streams:
        raise unknown("stream", stream, streams, "the streams that grow")
    mine = [found for found in mine if stream in (None, found.continuation.stream)]
    for option, found in (
        ("--network", {writer.placed.network for writer in mine}),
        ("--stream", {writer.continuation.stream for writer in mine}),
    ):
        if len(found) > 1:
            raise WorkbenchError(f"several can go on with a text: {', '.join(sorted(found))}; say {option}")
    return mine[0]
