"""The processes of this machine: an ordered, bounded map whose workers hold the job."""

from __future__ import annotations

import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from workbench.errors import MachineError
from workbench.lost_process import how_it_ended
from workbench.parent_process import follow_parent

Context = TypeVar("Context")
Item = TypeVar("Item")
Value = TypeVar("Value")

_held: Any = None


def each(
    function: Callable[[Context, Item], Value], context: Context, items: Iterable[Item], workers: int
) -> Iterator[Value]:
    """`function(context, item)` for every item, in order, on `workers` processes (1 = in this one).

    The context is sent once to each process and stays there. At most `workers + 2` items are under way, so `items` may
    be larger than memory. When the consumer stops, or an item fails, what is under way is finished and no more.

    Raises:
        WorkbenchError: what `function` raised.
        MachineError: a process died.
    """
    if workers == 1:
        for item in items:
            yield function(context, item)
        return
    pool = ProcessPoolExecutor(
        workers, mp_context=multiprocessing.get_context("spawn"), initializer=_hold, initargs=(context,)
    )
    waiting: deque[Future[Value]] = deque()
    others = set(multiprocessing.active_children())
    own: set[BaseProcess] = set()
    try:
        for item in items:
            waiting.append(pool.submit(_call, function, item))
            own |= set(multiprocessing.active_children()) - others
            if len(waiting) >= workers + 2:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool as error:
        pool.shutdown(wait=True)  # the exit codes are known when all have ended
        raise MachineError(_lost(own)) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _lost(processes: set[BaseProcess]) -> str:
    """How those ended that were lost first: the pool ends the others itself, by SIGTERM."""
    ended = [process for process in processes if process.exitcode]
    first = [process for process in ended if process.exitcode != -signal.SIGTERM] or ended[:1]
    killed = any(process.exitcode == -signal.SIGKILL for process in first)
    cause = ", as a rule because the machine ran out of memory" if killed else "; what it said stands above"
    return (
        f"{', '.join(how_it_ended(process, 'a worker') for process in first) or 'a worker was lost'}{cause}. The "
        "finished shards are kept: run the same command again to go on, "
        f"{'with fewer --workers or a smaller --shard-size' if killed else 'with --workers 1 to see more'}"
    )


def _hold(context: Any) -> None:
    """In a new worker: keep the context; what a terminal or a scheduler sends to the whole group is the parent's
    business; a parent that was killed is followed."""
    global _held
    _held = context
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):  # SIGTERM is how a pool ends its own processes
        signal.signal(number, signal.SIG_IGN)
    follow_parent()


def _call(function: Callable[[Any, Item], Value], item: Item) -> Value:
    return function(_held, item)
