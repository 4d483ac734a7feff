"""The local engine: processes of this machine, an ordered, bounded map whose workers hold the context.

Each worker has its own pipe: items go to it, values come back. The pools of the standard library share queues and
their locks. A process that dies, or a signal that interrupts the main thread, may keep a lock for ever, and all others
wait. The end of a worker's own pipe shows that the worker has died, whatever it was doing.
"""

from __future__ import annotations

import atexit
import multiprocessing
import pickle
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from types import FrameType
from typing import Any, NamedTuple

from pipelines.preparing.engines.engine import RESUMED, Context, Engine, Item, Value
from workbench.core.errors import MachineError
from workbench.core.processes.children import cores, follow_parent, how_it_ended

GROUP = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
"""Signals that a terminal or a scheduler sends to a whole group; the process that started the others handles them."""
DYING = 10.0
"""Seconds within which a worker has ended after it closed its pipe."""
GONE = (EOFError, BrokenPipeError, ConnectionResetError)


class LocalEngine(Engine):
    """Processes of this machine; with one worker, this process."""

    def __init__(self, workers: int = 0) -> None:
        self.workers = workers or cores()

    @property
    def in_process(self) -> bool:
        return self.workers == 1

    def each(
        self, function: Callable[[Context, Item], Value], context: Context, items: Iterable[Item], device: str = "cpu"
    ) -> Iterator[Value]:
        """As `Engine.each`; at most `workers + 2` items are in progress."""
        if self.in_process:
            for item in items:
                yield function(context, item)
            return
        crew = _Crew(pickle.dumps((function, context)), self.workers)
        try:
            number = 0
            for number, item in enumerate(items, 1):
                crew.add(item)
                if number >= self.workers + 2:
                    yield crew.next()
            for _ in range(min(number, self.workers + 1)):
                yield crew.next()
        finally:
            end(crew.workers)


class _Crew:
    """Up to `most` workers and the items in progress. A worker is started when there is an item for it."""

    def __init__(self, task: bytes, most: int) -> None:
        self.task, self.most = task, most
        self.workers: list[Worker] = []
        self._unsent: deque[tuple[int, Any]] = deque()
        self._numbers: dict[Worker, int] = {}  # the item that each works on
        self._answers: dict[int, Answer] = {}  # finished items that were not fetched yet
        self._added = self._asked = 0

    def add(self, item: Any) -> None:
        """Add an item; it is sent when a worker is free."""
        self._unsent.append((self._added, item))
        self._added += 1
        if len(self.workers) < min(self.most, self._added):
            with held_back():
                self.workers.append(Worker(self.task))
        self._receive(timeout=0)

    def next(self) -> Any:
        """The value of the first item that was not fetched yet, or its error."""
        while self._asked not in self._answers:
            self._receive(timeout=None)
        self._asked += 1
        return self._answers.pop(self._asked - 1).get()

    def _receive(self, timeout: float | None) -> None:
        """Receive the answers of workers, and send items to free ones."""
        of = {worker.connection: worker for worker in self.workers if not worker.idle}
        for ready in wait(list(of), timeout):
            worker = of[ready]  # type: ignore[index]
            answer = worker.take()
            if answer is not None:
                self._answers[self._numbers.pop(worker)] = answer
        for worker in self.workers:
            if worker.idle and self._unsent:
                self._numbers[worker], item = self._unsent.popleft()
                worker.give(item)


class InWorkerError(Exception):
    """The place in the worker where an error was raised: the cause of that error in this process."""


class Answer(NamedTuple):
    """The value of an item, or the error and its traceback in the worker."""

    value: Any = None
    error: Exception | None = None
    where: str = ""

    def get(self) -> Any:
        """
        Raises:
            Exception: raised by the function.
        """
        if self.error is not None:
            raise self.error from InWorkerError(self.where)
        return self.value


class Worker:
    """A started process. It is `idle` when it can receive an item.

    Args:
        task: the function and its context, pickled; they are sent once.
    """

    def __init__(self, task: bytes) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.connection, its_end = spawn.Pipe()
        self.process = spawn.Process(target=_serve, args=(its_end,))
        self.task = task
        self.idle = False
        self._ready = False
        try:
            self.process.start()
        except BrokenPipeError as error:
            raise MachineError("a worker ended while it started; its output is above") from error
        finally:
            its_end.close()
        atexit.register(self.connection.close)  # before Python waits for its processes, which wait for this

    def give(self, item: Any) -> None:
        """
        Raises:
            MachineError: the worker has died.
        """
        self.idle = False
        try:
            self.connection.send(item)
        except GONE as error:
            raise self._lost() from error

    def take(self) -> Answer | None:
        """The answer to its item; None where the worker only reports that it has started.

        Raises:
            MachineError: the worker has died.
        """
        try:
            if not self._ready:
                self.connection.recv()
                self.connection.send_bytes(self.task)
                self._ready = self.idle = True
                return None
            answer: Answer = self.connection.recv()
        except GONE as error:
            raise self._lost() from error
        self.idle = True
        return answer

    def _lost(self) -> MachineError:
        self.process.join(DYING)
        self.process.kill()
        self.process.join()
        killed = self.process.exitcode == -signal.SIGKILL
        cause = ", as a rule because the machine ran out of memory" if killed else "; its output is above"
        advice = "with fewer --workers or a smaller --shard-size" if killed else "with --workers 1 to see more"
        return MachineError(f"{how_it_ended(self.process, 'a worker')}{cause}. {RESUMED}, {advice}")


def end(workers: list[Worker]) -> None:
    """Close the pipes and wait: each worker finishes its item and ends. An interruption meanwhile kills them."""
    for worker in workers:
        worker.connection.close()
        atexit.unregister(worker.connection.close)
    try:
        for worker in workers:
            worker.process.join()
    except BaseException:
        for worker in workers:
            worker.process.kill()
        raise


@contextmanager
def held_back(*, blocked_in_children: bool = True) -> Iterator[None]:
    """Within, processes can be started: signals of `GROUP` are delivered afterwards, and new processes block them.

    Otherwise a process might be started that nobody knows of, or die of Ctrl-C before it ignores it. Blocking them in
    this thread is not enough, as other threads may receive them.

    Args:
        blocked_in_children: whether new processes block them; Ray's are ended by SIGTERM.
    """
    came: list[int] = []

    def keep(number: int, frame: FrameType | None) -> None:
        came.append(number)

    here = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in GROUP if here}
    try:
        for number, handler in before.items():
            if callable(handler):
                signal.signal(number, keep)
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, GROUP if blocked_in_children else ())
        try:
            if blocked_in_children:
                resource_tracker.ensure_running()  # Python starts this process in addition; it must not die either
                signal.pthread_sigmask(signal.SIG_BLOCK, GROUP)  # the line above unblocked some
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for name in came:
            signal.raise_signal(name)


def _serve(connection: Connection) -> None:
    """In a new worker: `function(context, item)` for each item, until the pipe is closed. The worker ends with its
    parent."""
    for number in GROUP:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, GROUP)
    follow_parent()
    try:
        connection.send(None)
        function, context = connection.recv()
        while True:
            connection.send_bytes(answer_to(function, context, connection.recv()))
    except GONE:
        return


def answer_to(function: Callable[[Any, Any], Any], context: Any, item: Any) -> bytes:
    """The pickled `Answer` of a unit."""
    try:
        return pickle.dumps(Answer(function(context, item)))
    except Exception as error:
        where = traceback.format_exc()
        try:
            answer = pickle.dumps(Answer(error=error, where=where))
            pickle.loads(answer)
        except Exception:  # an error that cannot be sent
            answer = pickle.dumps(Answer(error=RuntimeError(f"{type(error).__name__}: {error}"), where=where))
        return answer
