"""The contract of engines: what runs the units of a preparation.

A unit is a pure function of a context and an item: it writes one output under its own name, or returns a small value.
So a unit may run on any machine, and twice. An engine decides where units run, and never what they write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

Context = TypeVar("Context")
Item = TypeVar("Item")
Value = TypeVar("Value")
RESUMED = "The finished shards are kept: run the same command again to continue"
"""The end of messages about lost workers."""


class Engine:
    """Runs units. `workers` units run at once; 0 stands for as many as the machines have cores."""

    workers: int = 1

    @property
    def in_process(self) -> bool:
        """Whether units run in this process, so that items need not be sent."""
        return False

    @contextmanager
    def opened(self, shared: Sequence[Path] = ()) -> Iterator[None]:
        """Within, units can be run.

        Args:
            shared: folders that every machine has to see.
        """
        yield

    def each(
        self, function: Callable[[Context, Item], Value], context: Context, items: Iterable[Item], device: str = "cpu"
    ) -> Iterator[Value]:
        """`function(context, item)` for every item, in order.

        The context is sent once to each worker and stays there. A few more items than workers are in progress, so
        `items` may be larger than memory. When the consumer stops, or an item fails, items in progress are finished
        and no more are started. A second interruption kills the workers.

        Args:
            device: the device on which the context computes: auto, cpu or cuda.

        Raises:
            WorkbenchError: raised by `function`.
            MachineError: workers were lost.
        """
        raise NotImplementedError(f"{type(self).__name__} must define each")
