"""The loader: micro-batches in an order that is known in advance, so that workers and prefetching change nothing."""

from __future__ import annotations

import io
import pickle
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, get_worker_info

from workbench.errors import BadValueError, MachineError, WorkbenchError, message, system_error
from workbench.processes.cores import loaders
from workbench.sequences.batch import MicroBatch
from workbench.sequences.sequence import Sample
from workbench.tasks.schedule import TaskSchedule
from workbench.tasks.task import Task
from workbench.tasks.workers import POLL, Workers, serve

PREFETCH = 4


class SampleReader(Protocol):
    """What the feed needs of `workbench.corpora`'s reader: a pure function of the micro-batch's place."""

    @property
    def skipped(self) -> Counter[str]: ...

    def micro_batch(self, number: int, lane: int) -> list[Sample]: ...

    def skip(self, error: WorkbenchError, reason: str) -> None: ...

    def wrong_sizes(self) -> list[str]: ...


class MicroBatchId(NamedTuple):
    """A micro-batch's place: which task, its number in that task, its lane; and the progress of the run there, which
    hooks are told: 0 at its start, 1 at its end and in held-out passes."""

    task: str
    number: int
    lane: int
    progress: float = 1.0


class WorkerError(Exception):
    """A bug met in a loader worker, told by its traceback there: the error itself may be of a class that no other
    process has."""


@dataclass
class Failure:
    """What went wrong in a worker, carried to the main process in words; `kind` is what is raised there."""

    message: str
    kind: type[Exception]


class MicroBatches(Dataset):
    """A map from places to micro-batches. A place without samples or sequences gives None.

    `split` is 0 for training and 1 for held-out passes: part of the key of hooks that look across a micro-batch.
    """

    def __init__(self, tasks: Mapping[str, Task], readers: Mapping[str, SampleReader], split: int = 0) -> None:
        self.tasks = tasks
        self.readers = readers
        self.split = split

    def __getitem__(self, place: MicroBatchId) -> MicroBatch | Failure | None:
        try:
            return self.micro_batch(place)
        except (OSError, WorkbenchError) as refused:
            error = system_error(refused) if isinstance(refused, OSError) else refused
            return Failure(message(error), MachineError if isinstance(error, MachineError) else WorkbenchError)
        except BaseException as bug:  # in a worker nobody would hear of one that cannot be pickled, or ends the process
            if get_worker_info() is None:
                raise
            line = "".join(traceback.format_exception_only(bug))
            no_memory = isinstance(bug, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in line
            return Failure(line, MemoryError) if no_memory else Failure(traceback.format_exc(), WorkerError)

    def micro_batch(self, place: MicroBatchId) -> MicroBatch | None:
        """The micro-batch at a place; `dropped` tells what the reader skipped and the builder lost on the way."""
        reader = self.readers[place.task]
        before = Counter(reader.skipped)
        micro = self._made(self.tasks[place.task], reader, reader.micro_batch(place.number, place.lane), place)
        if micro is None or not all(view.streams for view in micro.views.values()):
            return None
        for reason, count in (reader.skipped - before).items():
            micro.dropped[reason] = micro.dropped.get(reason, 0) + count
        if get_worker_info() is not None:
            _Portable(io.BytesIO()).dump(micro)
        return micro

    def wrong_sizes(self) -> list[str]:
        """The shards of all tasks whose size is not that of corpus.json, in words."""
        return sorted({found for reader in self.readers.values() for found in reader.wrong_sizes()})

    def _made(self, task: Task, reader: SampleReader, samples: list[Sample], place: MicroBatchId) -> MicroBatch | None:
        """The micro-batch of the samples, less those that the reader skips because a value cannot be used."""
        while samples:
            try:
                return task.micro_batch(samples, (self.split, place.number, place.lane), place.progress)
            except BadValueError as error:
                task.take_dropped()
                bad = next((sample for sample in samples if _holds(sample, error.value)), None)
                if bad is None:
                    raise
                where = f"corpus {bad.get('corpus', '?')!r}, key {bad.get('key', '?')!r}"
                told = f"{where}: {error.detail} (train.on_error=skip leaves such samples out)"
                reader.skip(WorkbenchError(told), error.reason)
                samples = [sample for sample in samples if sample is not bad]
        return None


def _holds(sample: Sample, value: object) -> bool:
    """Whether it is a value of the sample, or one of its media."""
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


@contextmanager
def feed(
    batches: MicroBatches, places: Iterable[MicroBatchId], *, num_workers: int | None, device: torch.device
) -> Iterator[Iterator[MicroBatch | None]]:
    """Micro-batches at these places, in this order; pinned for CUDA. Without workers they are made when asked for.

    `num_workers` None: as many as the machine has cores for.

    Raises:
        WorkbenchError: the one met in a worker.
        MachineError: a worker was lost or hangs.
        WorkerError: a bug in a worker, with the traceback there.
    """
    workers = loaders(device) if num_workers is None else num_workers
    loader = DataLoader(
        batches,
        batch_size=None,
        sampler=places,
        num_workers=workers,
        prefetch_factor=PREFETCH if workers else None,
        pin_memory=device.type == "cuda",
        worker_init_fn=serve,
        timeout=POLL if workers else 0,
        collate_fn=_same,
    )
    with Workers(loader, batches.wrong_sizes) as found:
        yield map(_whole, found)


class _Portable(pickle.Pickler):
    """Raises where a micro-batch cannot be sent to another process; torch's queue would lose it without a word.
    Tensors can: they are passed over."""

    def persistent_id(self, found: Any) -> str | None:
        return "tensor" if isinstance(found, Tensor) else None


def _whole(micro: MicroBatch | Failure | None) -> MicroBatch | None:
    if isinstance(micro, Failure):
        raise micro.kind(micro.message)
    return micro


def _same(micro: Any) -> Any:
    return micro
