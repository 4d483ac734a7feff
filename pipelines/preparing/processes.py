"""The processes of this machine: an ordered, bounded map whose workers hold the job."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import wait
from typing import Any, TypeVar

from pipelines.preparing.worker import Answer, Worker, end, held_back

Context = TypeVar("Context")
Item = TypeVar("Item")
Value = TypeVar("Value")


def each(
    function: Callable[[Context, Item], Value], context: Context, items: Iterable[Item], workers: int
) -> Iterator[Value]:
    """`function(context, item)` for every item, in order, on `workers` processes (1 = in this one).

    The context is sent once to each process and stays there. At most `workers + 2` items are under way, so `items` may
    be larger than memory. When the consumer stops, or an item fails, what is under way is finished and no more; a
    second interruption kills the workers.

    Raises:
        WorkbenchError: what `function` raised.
        MachineError: a process died.
    """
    if workers == 1:
        for item in items:
            yield function(context, item)
        return
    crew = _Crew(pickle.dumps((function, context)), workers)
    try:
        number = 0
        for number, item in enumerate(items, 1):
            crew.add(item)
            if number >= workers + 2:
                yield crew.next()
        for _ in range(min(number, workers + 1)):
            yield crew.next()
    finally:
        end(crew.workers)


class _Crew:
    """Up to `most` workers and the items on their way. A worker is started when there is an item for it."""

    def __init__(self, task: bytes, most: int) -> None:
        self.task, self.most = task, most
        self.workers: list[Worker] = []
        self._unsent: deque[tuple[int, Any]] = deque()
        self._numbers: dict[Worker, int] = {}  # what each works at
        self._answers: dict[int, Answer] = {}  # what is done and was not asked for yet
        self._added = self._asked = 0

    def add(self, item: Any) -> None:
        """An item more; it is sent when a worker is free."""
        self._unsent.append((self._added, item))
        self._added += 1
        if len(self.workers) < min(self.most, self._added):
            with held_back():
                self.workers.append(Worker(self.task))
        self._receive(timeout=0)

    def next(self) -> Any:
        """The value of the first item that was not asked for yet, or its error."""
        while self._asked not in self._answers:
            self._receive(timeout=None)
        self._asked += 1
        return self._answers.pop(self._asked - 1).get()

    def _receive(self, timeout: float | None) -> None:
        """Take what workers have to say, and give the free ones work."""
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
