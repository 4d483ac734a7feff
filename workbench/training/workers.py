"""The loader's processes: they end when their owner is done with them, whatever happened to either."""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any, Generic, TypeVar

from torch.utils.data import DataLoader

from workbench.errors import MachineError, WorkbenchError

T = TypeVar("T")
PATIENCE = 1800.0
"""Seconds without a micro-batch after which the workers are taken to hang (a dead network file system)."""
CAUSES = {
    signal.SIGKILL: "as a rule the machine ran out of memory: lower train.num_workers or train.micro_batch_size",
    signal.SIGBUS: "a shard was cut short while it was read, or /dev/shm is full",
    signal.SIGSEGV: "a bug in a library, or a damaged file that it read",
}


class Workers(Generic[T]):
    """Iterates over a DataLoader and owns its processes: a context manager that leaves none behind.

    Workers ignore the signals that stop a run (`signals.ignore_in_worker`). The interpreter ends what is left of them
    with such a signal and then waits, for ever; so after an error they are killed here, which they can be: they only
    read. Otherwise they are asked to end.

    Raises (when it is left):
        MachineError: the error was that a worker was lost.
    """

    def __init__(self, loader: DataLoader[T]) -> None:
        self.loader = loader
        self.processes: list[BaseProcess] = []

    def __enter__(self) -> Iterator[T]:
        before = set(multiprocessing.active_children())
        try:
            self._items = _items(iter(self.loader))
        except BaseException:
            self.processes = [child for child in multiprocessing.active_children() if child not in before]
            self._kill()
            raise
        self.processes = [child for child in multiprocessing.active_children() if child not in before]
        return self._items

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        lost = [process for process in self.processes if process.exitcode not in (None, 0)]
        if error is not None:
            self._kill()
        self._items.close()  # nobody else has the DataLoader's iterator: this asks workers to end and waits a little
        self._kill()
        if lost and isinstance(error, Exception) and not isinstance(error, WorkbenchError):
            # a RuntimeError of the DataLoader, or a connection that broke, or a message that was cut off
            raise MachineError("; ".join(map(_ended, lost))) from error

    def _kill(self) -> None:
        with _no_news_of_children():
            for process in self.processes:
                process.kill()
            for process in self.processes:
                process.join()


def _items(iterator: Iterator[T]) -> Generator[T, None, None]:
    try:
        yield from iterator
    except RuntimeError as error:
        if str(error).startswith("DataLoader timed out"):
            raise MachineError(
                f"no micro-batch came from the loader's workers for {PATIENCE / 60:.0f} minutes; does the file system "
                "or the server of the corpora answer?"
            ) from error
        raise


@contextmanager
def _no_news_of_children() -> Iterator[None]:
    """The DataLoader raises in the main thread when one of its workers dies; not while we end them ourselves."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before: Any = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, before)


def patience(num_workers: int) -> float:
    """The DataLoader's timeout: none without workers, nor outside the main thread, where it would hide their deaths."""
    return PATIENCE if num_workers and threading.current_thread() is threading.main_thread() else 0.0


def _ended(process: BaseProcess) -> str:
    code = process.exitcode or 0
    if code > 0:
        return f"a loader worker (process {process.pid}) ended with exit code {code}"
    number = signal.Signals(-code)
    cause = f"; {CAUSES[number]}" if number in CAUSES else ""
    return f"a loader worker (process {process.pid}) was killed by {number.name}{cause}"
