"""The data loader: micro-batches in an order that is known in advance, so that workers and prefetching change nothing.

Training and held-out passes share the worker processes (`workers`), which are forked once, before the run has threads.
A worker sends a micro-batch as a pickle and the bytes of all tensors (`transport`). A thread of the main process
receives them in one buffer, in which the fields are views (`workbench.sequences.flat`), and for CUDA pins the next
`NEAR` ones. So a copy to the device is one copy, which overlaps with the computation of the micro-batch before.

Each worker makes `PREFETCH` micro-batches ahead, as far as all together take at most `MOST` bytes; `FEWEST` may always
be made.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from types import TracebackType
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from workbench.core.errors import BadValueError, WorkbenchError, system_error
from workbench.core.processes.children import loaders
from workbench.pretraining.schedule import TaskSchedule
from workbench.pretraining.task import Task
from workbench.pretraining.workers import MAKING, READING, Failure, GiveUp, Workers, note
from workbench.sequences.batch import MicroBatch
from workbench.sequences.sequence import Sample

PREFETCH, FEWEST, NEAR = 4, 4, 2
MOST = 2 * 2**30


def made_ahead(workers: int, size: int) -> int:
    """The number of micro-batches of so many bytes that are made ahead; `FEWEST` until a size is known."""
    return max(FEWEST, min(workers * PREFETCH, MOST // size)) if size else FEWEST


class SampleReader(Protocol):
    """The methods of `workbench.corpora`'s reader that the feed needs: a pure function of the micro-batch's place."""

    @property
    def skipped(self) -> Counter[str]: ...

    def micro_batch(self, number: int, lane: int) -> list[Sample]: ...

    def skip(self, error: WorkbenchError, reason: str) -> None: ...

    def wrong_sizes(self) -> list[str]: ...


class MicroBatchId(NamedTuple):
    """A micro-batch's place: its task, its number in that task, its lane; and the progress of the run there, which
    hooks get: 0 at its start, 1 at its end and in held-out passes."""

    task: str
    number: int
    lane: int
    progress: float = 1.0


class MicroBatches:
    """A map from places to micro-batches.

    `split` is 0 for training and 1 for held-out passes: part of the key of hooks that look across a micro-batch.
    """

    def __init__(self, tasks: Mapping[str, Task], readers: Mapping[str, SampleReader], split: int = 0) -> None:
        self.tasks = tasks
        self.readers = readers
        self.split = split
        self._passage = 0

    def begin(self, passage: int) -> None:
        """Begin a reading. The samples that the readers skip are counted anew in each."""
        if passage != self._passage:
            self._passage = passage
            for reader in self.readers.values():
                reader.skipped.clear()

    def micro_batch(self, place: MicroBatchId) -> MicroBatch | None:
        """The micro-batch at a place, None where there are no samples or sequences; `dropped` counts the samples that
        the reader skipped and the builder lost."""
        reader = self.readers[place.task]
        before = Counter(reader.skipped)
        note(READING)
        samples = reader.micro_batch(place.number, place.lane)
        note(MAKING)
        micro = self._made(self.tasks[place.task], reader, samples, place)
        if micro is None or not all(view.streams for view in micro.views.values()):
            return None
        for reason, count in (reader.skipped - before).items():
            micro.dropped[reason] = micro.dropped.get(reason, 0) + count
        return micro

    def wrong_sizes(self) -> list[str]:
        """The shards of all tasks whose size differs from corpus.json, in words."""
        return sorted({found for reader in self.readers.values() for found in reader.wrong_sizes()})

    def _made(self, task: Task, reader: SampleReader, samples: list[Sample], place: MicroBatchId) -> MicroBatch | None:
        """The micro-batch of the samples, without those that the reader skips because a value cannot be used."""
        while samples:
            try:
                return task.micro_batch(samples, (self.split, place.number, place.lane), place.progress)
            except BadValueError as error:
                task.take_dropped()
                bad = next((sample for sample in samples if _holds(sample, error.value)), None)
                if bad is None:
                    raise
                where = f"corpus {bad.get('corpus', '?')!r}, key {bad.get('key', '?')!r}"
                message = f"{where}: {error.detail} (train.on_error=skip leaves such samples out)"
                reader.skip(WorkbenchError(message), error.reason)
                samples = [sample for sample in samples if sample is not bad]
        return None


def _holds(sample: Sample, value: object) -> bool:
    """Whether a value is one of the sample, or one of its media."""
    return any(found is value for found in (*sample.values(), *sample.get("media", {}).values()))


def training_places(
    schedule: TaskSchedule, steps: range, lanes: Iterable[int], max_steps: int
) -> Iterator[MicroBatchId]:
    """The places of these steps, of `max_steps` of the run, for a rank's lanes: by step, task, lane."""
    own = list(lanes)
    for step in steps:
        for turn in schedule.at(step):
            for lane in own:
                yield MicroBatchId(turn.task, turn.number, lane, step / max_steps)


class Feed:
    """Makes the micro-batches of a run: a context manager that owns the worker processes. Without workers it makes a
    micro-batch when it is asked for. The same processes serve training and held-out passes.

    Args:
        sources: the sources of micro-batches, each of a split of its own.
        num_workers: processes; None: as many as the machine has cores for.
        stop: whether a signal asked the run to stop.
    """

    def __init__(
        self,
        sources: Iterable[MicroBatches],
        *,
        num_workers: int | None,
        device: torch.device,
        stop: Callable[[], bool] = bool,
    ) -> None:
        self._sources = {source.split: source for source in sources}
        self._passages = 0
        self.given_up = False
        """Whether a signal asked the run to stop, and a micro-batch did not come: every later one is None."""
        number = loaders(device) if num_workers is None else num_workers
        self.workers: Workers | None = None
        if number:
            self.workers = Workers(self._make, number, device=device, wrong_sizes=self._wrong_sizes, stop=stop)

    def __enter__(self) -> Feed:
        if self.workers is not None:
            self.workers.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.workers is not None:
            self.workers.__exit__(kind, error, trace)

    def micro_batches(self, source: MicroBatches, places: Iterable[MicroBatchId]) -> Ahead:
        """The micro-batches at these places, in this order, made ahead by the workers."""
        self._passages += 1
        return Ahead(self, (MicroBatchRequest(source.split, self._passages, place) for place in places))

    def made(self, order: MicroBatchRequest) -> MicroBatch | None:
        """A micro-batch made in this process."""
        try:
            return self._make(order)
        except OSError as refused:
            raise system_error(refused) from refused

    def _make(self, order: MicroBatchRequest) -> MicroBatch | None:
        source = self._sources[order.split]
        source.begin(order.passage)
        return source.micro_batch(order.place)

    def _wrong_sizes(self) -> list[str]:
        return sorted({found for source in self._sources.values() for found in source.wrong_sizes()})


class MicroBatchRequest(NamedTuple):
    """A request for a micro-batch, in one reading of its source."""

    split: int
    passage: int
    place: MicroBatchId

    def __str__(self) -> str:
        return f"micro-batch {self.place.number} of lane {self.place.lane} of task {self.place.task!r}"


class Ahead(Iterator["MicroBatch | None"]):
    """Micro-batches in the order of their places. As many are requested as the workers can make ahead.

    Raises:
        WorkbenchError: an error of the input in a worker.
        MachineError: a worker was lost, is stopped or hangs.
        WorkerError: a bug in a worker, with its traceback.
    """

    def __init__(self, feed: Feed, orders: Iterator[MicroBatchRequest]) -> None:
        self._feed, self._orders = feed, orders
        self._tickets: deque[int] = deque()

    def __next__(self) -> MicroBatch | None:
        workers = self._feed.workers
        if workers is None:
            return self._feed.made(next(self._orders))
        self._ask(workers)
        if not self._tickets:
            raise StopIteration
        ticket = self._tickets.popleft()
        self._ask(workers)
        workers.approach(islice(self._tickets, NEAR))
        if self._feed.given_up:
            return None
        try:
            return _whole(*workers.take(ticket))
        except GiveUp:
            self._feed.given_up = True
            return None

    def peek(self) -> MicroBatch | None:
        """The next one, if it has arrived already."""
        workers = self._feed.workers
        if workers is None or not self._tickets or not workers.arrivals.has(self._tickets[0]):
            return None
        value, buffer = workers.arrivals.look_at(self._tickets[0])
        return _whole(value, buffer) if isinstance(value, MicroBatch) else None

    def _ask(self, workers: Workers) -> None:
        room = made_ahead(workers.number, workers.arrivals.largest) - len(self._tickets)
        self._tickets += [workers.ask(order) for order in islice(self._orders, max(0, room))]


def _whole(value: MicroBatch | Failure | None, buffer: Tensor) -> MicroBatch | None:
    if isinstance(value, Failure):
        raise value.kind(value.message)
    if value is not None:
        value.buffer = buffer
    return value
