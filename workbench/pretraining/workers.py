"""The worker processes of the data loader. Each has a socket of its own, so that one that dies or stops blocks no
other.

The main process checks the workers every second while it waits. A dead worker ends the run at once. One that is
stopped, or neither computes nor reads, ends it within a minute. One that reads, or has a living child process, has half
an hour. After a signal that stops a run, the main process waits ten seconds for a micro-batch; then all ranks leave
without that step and save the last one. Workers end with their owner.
"""

from __future__ import annotations

import faulthandler
import logging
import mmap
import multiprocessing
import os
import random
import selectors
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from multiprocessing import util
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any, NoReturn

import numpy as np
import psutil
import torch
from torch import Tensor

from workbench.core.errors import MachineError, WorkbenchError, message, system_error
from workbench.core.processes.children import follow_parent, how_it_ended
from workbench.core.processes.signals import WATCHED
from workbench.pretraining.arrivals import Arrivals
from workbench.pretraining.transport import packed, receive, send

logger = logging.getLogger(__name__)
POLL = 1.0
"""Seconds after which a process that waits for a micro-batch checks the workers."""
STUCK = 50
"""The number of checks in a row that find a worker idle (neither reading nor computing) or stopped before it is given
up."""
PATIENCE = 1800.0
"""Seconds without a micro-batch after which workers that read count as hanging (a dead network file system)."""
GRACE = 10.0
"""Seconds of waiting for a micro-batch after a signal asked the run to stop."""
LEAVING = 5.0
"""Seconds that workers have to end by themselves."""
CAUSES: dict[int, str] = {
    signal.SIGKILL: "as a rule the machine ran out of memory: lower train.num_workers or train.micro_batch_size",
    signal.SIGBUS: "a file of the data was changed or cut off while it was read, or the disk failed: run `workbench "
    "verify` on the corpora, and replace files by renaming, never by writing over them",
    signal.SIGSEGV: "a bug in a library, or a damaged file that it read",
}
EXITED = (
    "a library or a component of the recipe ended it; its output is above. train.num_workers=0 loads in the main "
    "process, with a full traceback"
)
STDERR = 2
IDLE, READING, MAKING, SENDING = range(4)
DOING = {
    IDLE: "took no order",
    READING: "read",
    MAKING: "made sequences (a builder, a transform or an objective)",
    SENDING: "handed over",
}
STOPPED = (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)


class WorkerError(Exception):
    """A bug met in a loader worker, with its traceback there: the error itself may be of a class that no other
    process has."""


class GiveUp(Exception):  # noqa: N818 (nothing is wrong)
    """A signal asked the run to stop, and the micro-batch that it waits for does not come."""


@dataclass
class Failure:
    """An error in a worker, carried to the main process in words; `kind` is the class that is raised there."""

    message: str
    kind: type[Exception]

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        if isinstance(error, OSError | WorkbenchError):
            refusal = system_error(error) if isinstance(error, OSError) else error
            return cls(message(refusal), MachineError if isinstance(refusal, MachineError) else WorkbenchError)
        line = "".join(traceback.format_exception_only(error))
        if isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in line:
            return cls(line, MemoryError)
        return cls("".join(traceback.format_exception(error)), WorkerError)


class WorkerBoard:
    """The current activity of each worker: a byte for each, in memory that the processes share."""

    def __init__(self, workers: int) -> None:
        self._bytes = mmap.mmap(-1, max(1, workers))

    def doing(self, worker: int) -> int:
        return self._bytes[worker]

    def note(self, worker: int, doing: int) -> None:
        self._bytes[worker] = doing


_own: tuple[WorkerBoard, int] | None = None  # of a worker


def note(doing: int) -> None:
    """Note the current activity of this process, where it is a worker."""
    if _own is not None:
        board, number = _own
        board.note(number, doing)


@dataclass(eq=False)
class LoaderWorker:
    """A worker as its owner sees it: `owes` has the tickets that it was given and has not answered."""

    number: int
    process: BaseProcess
    line: socket.socket
    owes: dict[int, Any] = field(default_factory=dict)
    gone: bool = False


class Pulse:
    """The activity of a process: the number of checks in a row that found it `still`, or `stopped`."""

    def __init__(self, worker: LoaderWorker) -> None:
        self._process = psutil.Process(worker.process.pid)
        self._computed = 0.0
        self.still = self.stopped = 0

    def look(self, doing: int) -> None:
        """Check a process. One that reads a file may wait for it; one that started a process waits for that one."""
        with self._process.oneshot():
            status, times = self._process.status(), self._process.cpu_times()
        computed = times.user + times.system
        busy = doing == READING or computed > self._computed or status == psutil.STATUS_DISK_SLEEP
        self._computed = computed
        self.stopped = self.stopped + 1 if status in STOPPED else 0
        self.still = 0 if self.stopped or busy or self._waits_for_another() else self.still + 1

    def _waits_for_another(self) -> bool:
        """Whether a child process lives; a finished child exists until its parent waits for it."""
        with suppress(psutil.NoSuchProcess):
            return any(child.status() != psutil.STATUS_ZOMBIE for child in self._process.children())
        return False


class Workers:
    """Processes that make the requested values; a context manager that leaves none behind.

    They are forked when it is entered, and never later: next to the threads that a run has by then a fork is not safe.
    A thread receives their answers, and for CUDA pins those that are taken next. They ignore the signals that stop a
    run. After an error they are killed, which is safe, as they only read; otherwise they are asked to end.

    Args:
        make: makes the value of a request, in a worker.
        device: the device to which the values are copied; pinned ones for CUDA.
        wrong_sizes: names the files that were cut off, when a worker died of a bus error.
        stop: whether a signal asked the run to stop.
    """

    def __init__(
        self,
        make: Callable[[Any], Any],
        number: int,
        *,
        device: torch.device | None = None,
        wrong_sizes: Callable[[], list[str]] = list,
        stop: Callable[[], bool] = bool,
    ) -> None:
        self.number = number
        self._make, self._device = make, device or torch.device("cpu")
        self._wrong_sizes, self._stop = wrong_sizes, stop
        self._workers: list[LoaderWorker] = []
        self._processes: list[BaseProcess] = []
        self._board = WorkerBoard(number)
        self._tickets = 0
        self.arrivals = Arrivals(pins=self._device.type == "cuda")
        self._news = self.arrivals.news
        self._failed: BaseException | None = None
        self._wake, self._woken = socket.socketpair()
        self._thread = threading.Thread(target=self._receive, name="loader", daemon=True)
        self._stopped_at: float | None = None

    def __enter__(self) -> Workers:
        # the user may interrupt any line here: `close` runs when the interpreter ends
        self._in_the_end = util.Finalize(self, _kill, (self._processes,), exitpriority=1)
        try:
            for number in range(self.number):
                self._start(number)
            self._thread.start()
        except BaseException:
            self._end(kill=True)
            raise
        return self

    def _start(self, number: int) -> None:
        ours, theirs = socket.socketpair()
        not_theirs = [ours, self._wake, self._woken, *(worker.line for worker in self._workers)]
        arguments = (theirs, not_theirs, number, self._board, self._make)
        process = multiprocessing.get_context("fork").Process(target=_serve, args=arguments, daemon=True)
        self._workers.append(LoaderWorker(number, process, ours))
        process.start()
        self._processes.append(process)
        theirs.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(kill=error is not None or self._stopped_at is not None)

    def _end(self, *, kill: bool) -> None:
        deadline = time.monotonic() + (0 if kill else LEAVING)
        for line in (*(worker.line for worker in self._workers), self._wake):
            with _ended_already():
                line.shutdown(socket.SHUT_RDWR)  # ends the loop of the worker, and the receiving thread
        for process in self._processes:
            process.join(max(0.0, deadline - time.monotonic()))
        self._in_the_end()
        if self._thread.is_alive():
            self._thread.join()
        while self._processes:
            self._processes.pop().close()
        for line in (*(worker.line for worker in self._workers), self._wake, self._woken):
            line.close()

    def ask(self, order: Any) -> int:
        """Request a value; returns the ticket to `take` it with. The worker with the least work gets the request."""
        ticket, self._tickets = self._tickets, self._tickets + 1
        with self._news:
            worker = min(self._workers, key=lambda worker: len(worker.owes))
            worker.owes[ticket] = order
        with _ended_already():  # `take` reports it
            send(worker.line, packed((ticket, order)))
        return ticket

    def approach(self, tickets: Iterable[int]) -> None:
        """Say which tickets are taken next."""
        if self.arrivals.approach(tickets):
            with _ended_already():
                self._wake.send(b"!")

    def take(self, ticket: int) -> tuple[Any, Tensor]:
        """The value, and the buffer [bytes] of its tensors.

        Raises:
            MachineError: a worker was lost, is stopped or hangs.
            GiveUp: a signal came, and this value did not.
        """
        self.approach([ticket])
        began, reported = time.monotonic(), False
        pulses: dict[LoaderWorker, Pulse] = {}
        while not self._came(ticket):
            self._look(ticket, pulses)
            waited = time.monotonic() - began
            if waited >= PATIENCE:
                raise MachineError(
                    f"no micro-batch came from the loader's workers for {PATIENCE / 60:.0f} minutes; does the file "
                    "system or the server of the corpora answer?"
                )
            if waited >= STUCK * POLL and not reported:
                reported = True
                logger.warning("waiting for the loader for %.0f seconds: %s", waited, self._doings(ticket))
        return self.arrivals.take(ticket)

    def _came(self, ticket: int) -> bool:
        """Whether it came before the time to check the workers."""
        with self._news:
            self._news.wait_for(lambda: self.arrivals.has(ticket) or self._failed or self._lost(), POLL)
            return self.arrivals.has(ticket)

    def _lost(self) -> list[LoaderWorker]:
        return [worker for worker in self._workers if worker.gone and worker.owes]

    def _look(self, ticket: int, pulses: dict[LoaderWorker, Pulse]) -> None:
        """Check why nothing comes."""
        if self._failed is not None:
            raise self._failed
        for worker in self._workers:
            worker.gone = worker.gone or worker.process.exitcode is not None
        if lost := self._lost():
            self._raise_lost([worker.process for worker in lost])
        if self._stop():
            self._stopped_at = self._stopped_at or time.monotonic()
            if time.monotonic() - self._stopped_at >= GRACE:
                raise GiveUp
        for worker in [worker for worker in self._workers if worker.owes]:
            try:
                pulses.setdefault(worker, Pulse(worker)).look(self._board.doing(worker.number))
            except psutil.Error:  # it has ended just now
                continue
            self._give_up(worker, pulses[worker])

    def _give_up(self, worker: LoaderWorker, pulse: Pulse) -> None:
        what = f"a loader worker (process {worker.process.pid})"
        if pulse.stopped >= STUCK:
            raise MachineError(
                f"{what} has been stopped, by SIGSTOP or a debugger, for {STUCK * POLL:.0f} seconds; `kill -CONT "
                f"{worker.process.pid}` would have resumed it"
            )
        if pulse.still >= STUCK:
            os.kill(worker.process.pid or 0, signal.SIGUSR2)
            time.sleep(min(POLL, 0.5))  # the worker writes its traceback
            raise MachineError(
                f"{what} hangs: for {STUCK * POLL:.0f} seconds it neither computed nor read, and it "
                f"{DOING[self._board.doing(worker.number)]}. Its traceback is above: usually it waits for a lock of a "
                "library, or a component of the recipe sleeps; train.num_workers=0 loads in the main process"
            )

    def _raise_lost(self, lost: list[BaseProcess]) -> NoReturn:
        for process in lost:
            process.join(LEAVING)
        cut_off = self._wrong_sizes() if any(process.exitcode == -signal.SIGBUS for process in lost) else []
        raise MachineError("; ".join([*map(_ended, lost), *cut_off]))

    def _doings(self, ticket: int) -> str:
        worker = next(worker for worker in self._workers if ticket in worker.owes)
        doing = DOING[self._board.doing(worker.number)]
        return f"its worker {worker.process.pid} last {doing}, for {worker.owes[ticket]}"

    def _receive(self) -> None:
        """The receiving thread: makes the workers' answers ready, until they are asked to end."""
        try:
            if self._device.type == "cuda":
                torch.cuda.set_device(self._device)
            with selectors.DefaultSelector() as selector:
                selector.register(self._woken, selectors.EVENT_READ)
                for worker in self._workers:
                    selector.register(worker.line, selectors.EVENT_READ, worker)
                going = True
                while going:
                    for key, _ in selector.select():
                        going = self._received(selector, key.data) and going
                    self.arrivals.pin()
        except BaseException as error:
            with self._news:
                self._failed = error
                self._news.notify_all()

    def _received(self, selector: selectors.BaseSelector, worker: LoaderWorker | None) -> bool:
        """Receive an answer of a worker, or a wake-up call; False where there will be none any more."""
        if worker is None:
            return bool(self._woken.recv(1024))
        sent = receive(worker.line)
        with self._news:
            if sent is None:
                worker.gone = True
                selector.unregister(worker.line)
            else:
                (ticket, value), buffer = sent
                if worker.owes.pop(ticket, self) is self:
                    raise MachineError(
                        f"loader worker {worker.process.pid} answered twice: a component called os.fork, and returned "
                        "in both processes. End the new one there (os._exit), or use subprocess"
                    )
                self.arrivals.put(ticket, (value, buffer))
            self._news.notify_all()
        return True


def _serve(
    line: socket.socket, not_ours: Iterable[socket.socket], number: int, board: WorkerBoard, make: Callable[[Any], Any]
) -> None:
    """The loop of a new worker: answers requests, in order, until its owner sends no more.

    The main process decides when to stop, although a terminal signals the whole group, and the worker ends with it. A
    bus error ends it (the main process reports the file that was cut off), and on SIGUSR2 it writes its traceback.
    """
    global _own
    _own = board, number
    for other in not_ours:  # which would stay open as long as this process lives
        other.close()
    for ignored in WATCHED:
        signal.signal(ignored, signal.SIG_IGN)
    for left in (signal.SIGBUS, signal.SIGCHLD):
        signal.signal(left, signal.SIG_DFL)
    faulthandler.register(signal.SIGUSR2, file=STDERR, all_threads=False)
    torch.set_num_threads(1)
    _seed(torch.initial_seed() + number)
    follow_parent()
    while (received := receive(line)) is not None:
        (ticket, order), _ = received
        note(MAKING)
        parts = _answer(ticket, make, order)
        note(SENDING)
        try:
            send(line, parts)
        except OSError:  # nobody listens any more
            return
        note(IDLE)


def _answer(ticket: int, make: Callable[[Any], Any], order: Any) -> list[Any]:
    """The value, or the error, also where the value cannot be sent."""
    try:
        return packed((ticket, make(order)))
    except BaseException as error:  # an error that cannot be pickled, or ends the process, would be lost
        return packed((ticket, Failure.of(error)))


def _seed(seed: int) -> None:
    """Seed the global generators: each worker draws other numbers."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed % 2**63)


def _kill(processes: list[BaseProcess]) -> None:
    for process in processes:
        process.kill()
    for process in processes:
        process.join()


def _ended_already() -> AbstractContextManager[None]:
    """A block in which it is no error that the other side has ended."""
    return suppress(OSError)


def _ended(process: BaseProcess) -> str:
    code = process.exitcode or 0
    cause = CAUSES.get(-code, "") if code < 0 else EXITED  # also with 0: it was not asked to end
    return f"{how_it_ended(process, 'a loader worker')}{'; ' if cause else ''}{cause}"
