"""The engine of Ray core: units run on actors, on this machine or on the nodes of a cluster.

Each actor receives the context once, so a model is loaded once by each. An actor that is lost with its worker or its
node is replaced, and its unit runs again on another one. Units commit by renaming, so two live copies of a unit end in
one output. A worker needs the shared folders, and the same code at the same place or installed.

The class of the actor is sent by value: a worker can import nothing of ours before it has the paths of this process.
"""

from __future__ import annotations

import hashlib
import logging
import os
import pickle
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pipelines.preparing.engines.engine import RESUMED, Context, Engine, Item, Value
from pipelines.preparing.engines.local import Answer, LocalEngine, held_back
from pipelines.preparing.engines.ray_cluster import ENVIRONMENT, OWN, connect, explained_loss, witnessed
from workbench.core.errors import MachineError, WorkbenchError
from workbench.core.packages import extra
from workbench.core.shipped import PACKAGES, PROJECT_ROOT

log = logging.getLogger(__name__)
LOSSES = 3
"""How often a unit may lose its worker; a unit that loses more is the cause itself, as a rule by its memory."""
AHEAD, HELD_BYTES = 4, 256 << 20
"""Items per worker, and bytes of them, that are held at most; a few items are held whatever their size."""
QUIET = 30.0
"""Seconds without a worker after which the wait for the cluster is logged."""
SENT = ("WORKBENCH_", "OMP_", "MKL_", "TOKENIZERS_", "HF_", "AWS_", "FSSPEC_", "GOOGLE_", "AZURE_")
"""The beginnings of the names of environment variables that workers receive."""


def chosen_engine(name: Literal["local", "ray"], workers: int, address: str | None) -> Engine:
    """The engine that the options of a command name.

    Raises:
        WorkbenchError: Ray is not installed, or an address is given without it.
    """
    if name == "ray":
        return RayEngine(workers, address)
    if address is not None:
        raise WorkbenchError(f"--address {address} is for --engine ray; add it, or remove the address")
    return LocalEngine(workers)


class RayEngine(Engine):
    """Actors of a Ray cluster.

    Args:
        workers: actors at once; 0 stands for as many as the cluster has cores, or GPUs for a context that computes on
            them.
        address: of a cluster that is running (auto, HOST:PORT), which stays running; without one a cluster on this
            machine is started, and ended.

    Raises:
        WorkbenchError: Ray is not installed.
    """

    def __init__(self, workers: int = 0, address: str | None = None) -> None:
        self.workers, self.address = workers, address
        self._shared: list[str] = []
        self._open = False
        self._free: list[Any] = []  # actors between two calls of `each`
        self._gpus = 0  # that each of them holds
        with extra("ray", "--engine ray needs"):
            if "ray" not in sys.modules:
                wanted = ENVIRONMENT if address is not None else ENVIRONMENT | OWN
                os.environ.update({name: os.environ.get(name, value) for name, value in wanted.items()})
            import ray  # noqa: F401

    @contextmanager
    def opened(self, shared: Sequence[Path] = ()) -> Iterator[None]:
        """Connect, or start a cluster. A process that is connected already stays so, and an open engine stays open.

        Raises:
            WorkbenchError, MachineError: as `connect`.
        """
        import ray

        if self._open:
            yield
            return
        self._shared = [os.path.abspath(folder) for folder in shared]
        ours = not ray.is_initialized()
        with witnessed():
            if ours:
                connect(ray, self.workers, self.address)
            self._open = True
            try:
                yield
            finally:
                self._open = False
                with held_back(blocked_in_children=False):
                    _end(ray, self._free)
                    if ours:
                        ray.shutdown()

    def each(
        self, function: Callable[[Context, Item], Value], context: Context, items: Iterable[Item], device: str = "cpu"
    ) -> Iterator[Value]:
        """As `Engine.each`; an item that lost its worker runs again. Actors stay for the next call."""
        import ray

        with explained_loss(ray):
            gpus = _gpus(ray, device)
            if gpus != self._gpus:
                _end(ray, self._free)
            self._gpus = gpus
            most = self.workers or int(ray.cluster_resources().get("GPU" if gpus else "CPU", 1)) or 1
            crew = _Actors(ray, self._setup(ray, function, context), most, gpus, self._free)
            try:
                for item in items:
                    crew.add(item)
                    if crew.full:
                        yield crew.next()
                while crew.held:
                    yield crew.next()
            except ray.exceptions.RayError:
                crew.abandon()
                raise
            finally:
                crew.end()

    def _setup(self, ray: Any, function: Any, context: Any) -> Any:
        """What an actor needs before its first item, in the object store."""
        paths = [str(PROJECT_ROOT), *(os.path.abspath(path) if path else os.getcwd() for path in sys.path)]
        environment = {name: value for name, value in os.environ.items() if name.startswith(SENT)}
        shared = [os.getcwd(), *self._shared] if self.address is not None else []
        task = ray.cloudpickle.dumps((function, context))
        return ray.put((paths, environment, os.getcwd(), shared, code_digest(), task))


def _gpus(ray: Any, device: str) -> int:
    """The GPUs of an actor.

    Raises:
        WorkbenchError: a GPU is asked for, and the cluster has none.
    """
    there = ray.cluster_resources().get("GPU", 0) >= 1
    if device == "cuda" and not there:
        raise WorkbenchError("--device cuda: no node of the Ray cluster has a GPU; use --device auto or cpu")
    return int(there and device != "cpu")


@cache
def code_digest() -> str:
    """A digest of the installed code; each worker compares its own."""
    total = hashlib.sha256()
    for package in ("workbench", *PACKAGES):
        for file in sorted((PROJECT_ROOT / package).rglob("*.py")):
            total.update(str(file.relative_to(PROJECT_ROOT)).encode() + b"\0" + file.read_bytes())
    return total.hexdigest()


class UnitActor:
    """In a worker of Ray: a function and its context, which run items."""

    def begin(self, setup: Any) -> str | None:
        """Take over the paths, the variables and the task of the driver; returns what is wrong with this node."""
        import os
        import pickle
        import socket
        import sys
        import time

        paths, environment, folder, shared, digest, task = setup
        node = socket.gethostname()
        for number in range(5):  # a network file system shows new folders after a while
            missing = next((place for place in shared if not os.path.exists(place)), None)
            if missing is None:
                break
            time.sleep(number)
        else:
            return f"the node {node} does not see {missing}: put it on a file system that all nodes share"
        sys.path[:] = [*paths, *(path for path in sys.path if path not in paths)]
        os.environ.update(environment)
        if os.path.isdir(folder):
            os.chdir(folder)
        try:
            from pipelines.preparing.engines.ray_core import code_digest
            from workbench.core.shipped import find_package_files
        except ImportError as error:
            return f"the node {node} cannot import the workbench ({error}): install it there, or share its folder"
        if code_digest() != digest:
            return f"the node {node} has another version of the workbench; install the same one on all nodes"
        find_package_files()
        self.function, self.context = pickle.loads(task)
        return None

    def run(self, item: bytes) -> tuple[bytes, list[tuple[str, int, str]]]:
        """The pickled answer of an item, and the lines that were logged meanwhile."""
        import logging
        import pickle

        from pipelines.preparing.engines.local import answer_to

        lines: list[tuple[str, int, str]] = []
        handler = logging.Handler(logging.WARNING)
        handler.emit = lambda record: lines.append((record.name, record.levelno, record.getMessage()))  # type: ignore[method-assign]
        logging.getLogger().addHandler(handler)
        try:
            return answer_to(self.function, self.context, pickle.loads(item)), lines
        finally:
            logging.getLogger().removeHandler(handler)


class _Actors:
    """Up to `most` actors and the items in progress. An actor is started when there is an item for it."""

    def __init__(self, ray: Any, setup: Any, most: int, gpus: int, free: list[Any]) -> None:
        self._ray, self._setup, self._most, self._free = ray, setup, most, free
        known = ray.exceptions
        self._lost_worker = (
            *(known.RayActorError, known.ObjectLostError, known.OutOfMemoryError),
            *(known.WorkerCrashedError, known.NodeDiedError),
        )
        self._kind = ray.remote(num_cpus=1, num_gpus=gpus, max_restarts=0, max_task_retries=0)(UnitActor)
        self._actors: list[Any] = []
        self._idle: list[Any] = []
        self._begun: dict[Any, Any] = {}  # actors by the answer of `begin`
        self._busy: dict[Any, tuple[Any, int]] = {}  # actors and the numbers of their items by the answer
        self._unsent: deque[int] = deque()
        self._items: dict[int, bytes] = {}
        self._answers: dict[int, Answer] = {}
        self._losses = Counter[int]()
        self._bytes = 0  # of the items that are held
        self._said: set[tuple[str, str]] = set()
        self._added = self._asked = 0

    @property
    def held(self) -> int:
        """The number of items that were added and not fetched."""
        return self._added - self._asked

    @property
    def full(self) -> bool:
        """Whether an answer has to be fetched before the next item. One slow item would let many workers wait, so more
        items are held while they are small."""
        many = self.held >= AHEAD * self._most or self._bytes >= HELD_BYTES
        return many and self.held >= self._most + 2

    @held_back(blocked_in_children=False)  # Ray makes SystemExit(1) of what a handler raises within its calls
    def add(self, item: Any) -> None:
        """Add an item; it is sent when an actor is free."""
        self._items[self._added] = pickle.dumps(item, protocol=5)
        self._bytes += len(self._items[self._added])
        self._unsent.append(self._added)
        self._added += 1
        if len(self._actors) < min(self._most, self._added):
            self._hire()
        self._receive(timeout=0)

    def next(self) -> Any:
        """The value of the first item that was not fetched yet, or its error."""
        waited = 0.0
        while self._asked not in self._answers:
            self._receive(timeout=1.0)
            waited = 0.0 if self._busy or self._idle else waited + 1.0
            if waited == QUIET:
                log.warning("the Ray cluster has no free core for a worker yet; waiting for one")
        self._asked += 1
        return self._answers.pop(self._asked - 1).get()

    def _hire(self) -> None:
        here = sys.modules[__name__]
        self._ray.cloudpickle.register_pickle_by_value(here)
        try:
            actor = self._free.pop() if self._free else self._kind.remote()
        finally:
            self._ray.cloudpickle.unregister_pickle_by_value(here)
        self._actors.append(actor)
        self._begun[actor.begin.remote(self._setup)] = actor

    @held_back(blocked_in_children=False)
    def _receive(self, timeout: float) -> None:
        """Receive the answers of actors, and send items to free ones."""
        waiting = [*self._busy, *self._begun]
        done, _ = self._ray.wait(waiting, num_returns=len(waiting), timeout=0) if waiting else ([], [])
        if not done and waiting and timeout:
            done, _ = self._ray.wait(waiting, num_returns=1, timeout=timeout)
        for answer in done:
            number = self._busy[answer][1] if answer in self._busy else None
            actor = self._begun.pop(answer) if number is None else self._busy.pop(answer)[0]
            try:
                found = self._ray.get(answer)
            except self._lost_worker as error:
                self._lose(actor, number, error)
                continue
            if number is None and found is not None:
                raise WorkbenchError(found)
            self._idle.append(actor)
            if number is not None:
                self._bytes -= len(self._items.pop(number))
                self._answers[number] = pickle.loads(found[0])
                self._say(found[1])
        while self._idle and self._unsent:
            actor, number = self._idle.pop(), self._unsent.popleft()
            self._busy[actor.run.remote(self._items[number])] = (actor, number)

    def _lose(self, actor: Any, number: int | None, error: Exception) -> None:
        """Replace an actor; its item is the next to be sent.

        Raises:
            MachineError: the item has lost more workers than others may.
        """
        with suppress(Exception):  # it is gone, or cannot be reached
            self._ray.kill(actor)
        self._actors.remove(actor)
        key = -1 if number is None else number
        self._losses[key] += 1
        why = str(error).strip().replace("\n", " ")[:300]
        if self._losses[key] > LOSSES:
            what = "workers of Ray did not start" if number is None else "a shard lost its worker"
            raise MachineError(
                f"{what} {self._losses[key]} times: {why}. As a rule the machine ran out of memory. {RESUMED}, with "
                "fewer --workers or a smaller --shard-size"
            )
        log.warning("a worker was lost; another one does its shard again (%s)", why[:120])
        if number is not None:
            self._unsent.appendleft(number)
        self._hire()

    def _say(self, lines: Iterable[tuple[str, int, str]]) -> None:
        """Log what a worker logged; the same line of several workers once."""
        for name, level, text in lines:
            if (name, text) not in self._said:
                self._said.add((name, text))
                logging.getLogger(name).log(level, "%s", text)

    @held_back(blocked_in_children=False)
    def _finished(self) -> bool:
        """Wait for a second; whether no item is in progress."""
        busy = list(self._busy)
        return not busy or not self._ray.wait(busy, num_returns=len(busy), timeout=1.0)[1]

    def abandon(self) -> None:
        """End the actors with their items."""
        self._idle.clear()
        self._busy.clear()
        _end(self._ray, self._actors)

    def end(self) -> None:
        """Wait for items in progress, and end actors that have not begun. An interruption meanwhile, or a lost cluster,
        ends all of them."""
        try:
            while not self._finished():
                pass
            ready = [*self._idle, *(actor for actor, _ in self._busy.values())]
            self._free += ready
            _end(self._ray, [actor for actor in self._actors if actor not in ready])
        except BaseException:
            _end(self._ray, self._actors)
            raise


def _end(ray: Any, actors: list[Any]) -> None:
    """Kill actors, and forget them."""
    while actors:
        with suppress(Exception):  # the cluster is gone
            ray.kill(actors.pop())
