"""The loader's processes: they end when their owner is done with them, whatever happened to either."""

from __future__ import annotations

import multiprocessing
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from multiprocessing import util
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any, Generic, TypeVar

from torch.utils.data import DataLoader
from torch.utils.data._utils import signal_handling

from workbench.errors import MachineError, WorkbenchError
from workbench.processes.lost import how_it_ended
from workbench.processes.parent import follow_parent
from workbench.processes.stop_request import WATCHED

T = TypeVar("T")
POLL = 1.0
"""Seconds of the DataLoader's own timeout, after which it looks whether its workers live."""
DYING = 1.0
"""Seconds after which a worker that breaks its connections is surely gone."""
PATIENCE = 1800.0
"""Seconds without a micro-batch after which the workers are taken to hang (a dead network file system)."""
CAUSES: dict[int, str] = {
    signal.SIGKILL: "as a rule the machine ran out of memory: lower train.num_workers or train.micro_batch_size",
    signal.SIGBUS: "a file of the data was changed or cut off while it was read, or the disk failed, or /dev/shm is "
    "full: run `workbench verify` on the corpora, and replace files by renaming, never by writing over them",
    signal.SIGSEGV: "a bug in a library, or a damaged file that it read",
}
EXITED = (
    "a library or a part of the recipe ended it, and what it said stands above; train.num_workers=0 loads in the main "
    "process, where one sees more"
)


def serve(worker: int) -> None:
    """In a new worker: the main process decides when to stop, although a terminal signals the whole group, and the
    worker ends with it. (The DataLoader's own look at its parent misses one that was killed while the worker began.)

    A bus error ends a worker without torch's advice on shared memory: here a file that was cut off is the likelier
    cause, and the main process says so.
    """
    for number in WATCHED:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGBUS, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    follow_parent()


class Workers(Generic[T]):
    """Iterates over a DataLoader and owns its processes: a context manager that leaves none behind.

    Workers ignore the signals that stop a run (`serve`). The interpreter ends what is left of them
    with such a signal and then waits, for ever; so after an error they are killed here, which they can be: they only
    read. Otherwise they are asked to end.

    Args:
        wrong_sizes: names the files that were cut off, when a worker died of a bus error.

    Raises (when it is left):
        MachineError: the error was that a worker was lost.
    """

    def __init__(self, loader: DataLoader[T], wrong_sizes: Callable[[], list[str]] = list) -> None:
        self.loader = loader
        self.wrong_sizes = wrong_sizes
        self.processes: list[BaseProcess] = []
        self._iterator: Any = None

    def __enter__(self) -> Iterator[T]:
        before = set(multiprocessing.active_children())
        try:
            with _no_news_of_children():
                self._iterator = iter(self.loader)
        except BaseException as error:
            self._own(before)  # those that were started before the error
            self.__exit__(type(error), error, error.__traceback__)
            raise
        self._own(before)
        self._items = _items(self._iterator)
        return self._items

    def _own(self, before: set[BaseProcess]) -> None:
        """Note the workers: those who live and, where the DataLoader got as far as to know them, also those who were
        killed since."""
        started = {child for child in multiprocessing.active_children() if child not in before}
        self.processes += started | set(getattr(self._iterator, "_workers", ()))
        # the user may interrupt whatever is done here: this is done when the interpreter ends
        self._in_the_end = util.Finalize(self, _kill, (self.processes,), exitpriority=1)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._items.close()
            self._iterator = None  # nobody else has it: it asks its workers to end and waits a little
            self._in_the_end()
            return
        unexplained = isinstance(error, Exception) and not isinstance(error, WorkbenchError)
        lost = self._lost(time.monotonic() + DYING) if unexplained else []
        self._abandon()
        self._in_the_end()
        if lost:  # the error is the DataLoader's, or of a connection that broke, or of a message that was cut off
            cut_off = self.wrong_sizes() if any(process.exitcode == -signal.SIGBUS for process in lost) else []
            raise MachineError("; ".join([*map(_ended, lost), *cut_off])) from error

    def _lost(self, deadline: float) -> list[BaseProcess]:
        """The workers that ended by themselves, or do so before the deadline. With exit code 0 end also those that were
        asked to, which the DataLoader does after its last item."""
        asked = getattr(self._iterator, "_shutdown", False)
        while True:
            codes = {process: process.exitcode for process in self.processes}
            lost = [process for process, code in codes.items() if code is not None and (code or not asked)]
            if lost or not self.processes or time.monotonic() >= deadline:
                return lost
            time.sleep(0.01)

    def _abandon(self) -> None:
        """Keep the DataLoader from saying goodbye to workers that are killed: they may die with the lock of the very
        event that it would set, and it would wait for that for ever. It has no public way to be told."""
        if self.processes and self._iterator is not None:
            self._iterator._shutdown = True
            signal_handling._remove_worker_pids(id(self._iterator))
            if hasattr(self._iterator, "_pin_memory_thread_done_event"):
                self._iterator._pin_memory_thread_done_event.set()


def _kill(processes: list[BaseProcess]) -> None:
    for process in processes:
        process.kill()
    for process in processes:
        process.join()


def _items(iterator: Iterator[T]) -> Generator[T, None, None]:
    asked = time.monotonic()
    while True:
        try:
            item = next(iterator)
        except StopIteration:
            return
        except RuntimeError as error:
            if not str(error).startswith("DataLoader timed out"):
                raise
            if time.monotonic() - asked >= PATIENCE:
                raise MachineError(
                    f"no micro-batch came from the loader's workers for {PATIENCE / 60:.0f} minutes; does the file "
                    "system or the server of the corpora answer?"
                ) from error
            continue
        yield item
        asked = time.monotonic()


@contextmanager
def _no_news_of_children() -> Iterator[None]:
    """Within, a DataLoader is made that is not told by a signal when a worker dies.

    It would raise in the main thread wherever that happens to be: in a finaliser, where the error is lost, or in the
    middle of a lock. It looks for itself every `POLL` seconds. What other DataLoaders of the process left to listen is
    taken away too: it would speak of these workers.
    """
    if threading.current_thread() is not threading.main_thread():  # there it does not listen to signals
        yield
        return
    before = signal.getsignal(signal.SIGCHLD)
    kept = before is not None and getattr(before, "__module__", "") != signal_handling.__name__
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, before if kept else signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _ended(process: BaseProcess) -> str:
    code = process.exitcode or 0
    cause = CAUSES.get(-code, "") if code < 0 else EXITED  # also with 0: nobody asked it to
    return f"{how_it_ended(process, 'a loader worker')}{'; ' if cause else ''}{cause}"
