"""The loader's speed: making micro-batches, handing them to the main process, beginning a held-out pass.

    python -m benchmarks.loading bert corpora/books --tokenizer tokenizer.json [--micro-batch-size 64] [--workers 2]

Next to it stands torch's DataLoader with the same workers on the same micro-batches, which sends each tensor in shared
memory of its own. Rounds of the two alternate in one process; the ratio is that of the medians. `handing over` sends
micro-batches that were made before, so that nothing else is measured; each tensor is read once on arrival. `CPU` is
processor time of the main process. `beginning` is the time to the first micro-batch of a pass: of processes that are
forked for it, and of those that serve the training already.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import statistics
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from benchmarks.rounds import clock_of, medians, timed
from workbench.core.processes.malloc import keep_freed_memory
from workbench.pretraining.assembly import tasks_of
from workbench.pretraining.loader import PREFETCH, Feed, MicroBatches, MicroBatchId
from workbench.pretraining.task_corpora import as_corpora_say
from workbench.recipe.reading import load_recipe
from workbench.recipe.trees import recipe_from_dict
from workbench.sequences.batch import MicroBatch
from workbench.text.tokenizer import Tokenizer
from workbench.training.data import reader_of

CPU = torch.device("cpu")
CLOCK, WALL = clock_of(), clock_of(threads=2)
Loaded = Iterator[MicroBatch | None]


class Made(MicroBatches):
    """Gives what was made before."""

    def __init__(self, micros: list[MicroBatch]) -> None:
        super().__init__({}, {})
        self._micros = micros

    def micro_batch(self, place: MicroBatchId) -> MicroBatch | None:
        return self._micros[place.number % len(self._micros)]


class Mapped(Dataset):
    """As a DataLoader reads them."""

    def __init__(self, source: MicroBatches) -> None:
        self._source = source

    def __getitem__(self, place: MicroBatchId) -> MicroBatch | None:
        return self._source.micro_batch(place)


def main() -> None:
    options = arguments()
    torch.set_num_threads(1)
    keep_freed_memory()
    source, name = micro_batches(options)
    places = [MicroBatchId(name, number, 0, 0.0) for number in range(options.batches)]
    micros: list[MicroBatch] = []
    seconds = timed(lambda: micros.extend(filter(None, map(source.micro_batch, places[:8])))) / len(micros)
    view = next(iter(micros[0].views.values()))
    size = statistics.mean(sum(t.nbytes for t in tensors(micro)) for micro in micros) / 2**20
    print(
        f"{options.recipe}: {view.size} sequences, {len(tensors(micros[0]))} tensors, {size:.2f} MiB a micro-batch; "
        f"making one: {seconds * 1e3:.1f} ms of CPU, {view.size / seconds:,.0f} sequences/s of a core"
    )
    for what, read in (("making and handing over", source), ("handing over", Made(micros))):
        compare(what, options, read, places, view.size)
    begin(options, source, places)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe")
    parser.add_argument("corpus")
    parser.add_argument("--tokenizer")
    parser.add_argument("--micro-batch-size", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batches", type=int, default=40, help="micro-batches of a round")
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args()


def micro_batches(options: argparse.Namespace) -> tuple[MicroBatches, str]:
    """Those of the recipe's first task on the corpus, and the task's name."""
    tree = dataclasses.asdict(load_recipe(options.recipe))
    tree["tokenizer"] = options.tokenizer
    for task in tree["tasks"].values():
        task["corpora"], task["held_out"] = {options.corpus: 1.0}, []
    sizes = dict.fromkeys(("micro_batch_size", "global_batch_size"), options.micro_batch_size)
    tree["train"] |= {**sizes, "evaluate_every": 0, "best": None}
    recipe = as_corpora_say(recipe_from_dict(tree, options.recipe))
    tokenizer = None if options.tokenizer is None else Tokenizer.load(options.tokenizer)
    tasks = tasks_of(recipe, tokenizer)
    name = next(iter(tasks))
    return MicroBatches(tasks, {name: reader_of(recipe, tasks[name])}), name


def tensors(micro: MicroBatch) -> list[Tensor]:
    found: dict[int, Tensor] = {}
    micro.map(lambda tensor: found.setdefault(id(tensor), tensor))
    return list(found.values())


@contextmanager
def by_torch(source: MicroBatches, places: Iterable[MicroBatchId], workers: int) -> Iterator[Loaded]:
    loader: Any = DataLoader(
        Mapped(source), batch_size=None, sampler=places, num_workers=workers, prefetch_factor=PREFETCH, collate_fn=same
    )
    yield iter(loader)


@contextmanager
def by_feed(source: MicroBatches, places: Iterable[MicroBatchId], workers: int) -> Iterator[Loaded]:
    with Feed([source], num_workers=workers, device=CPU) as feed:
        yield feed.micro_batches(source, places)


def same(value: Any) -> Any:
    return value


def compare(
    what: str, options: argparse.Namespace, source: MicroBatches, places: list[MicroBatchId], sequences: int
) -> None:
    """Rounds of both, after the first micro-batch: the processes run by then."""
    walls: dict[str, list[float]] = {"torch": [], "feed": []}
    cpus: dict[str, list[float]] = {"torch": [], "feed": []}
    for _, (name, opened) in itertools.product(range(options.rounds), (("torch", by_torch), ("feed", by_feed))):
        with opened(source, places, options.workers) as loaded:
            read(next(loaded))
            cpu = CLOCK()
            walls[name].append(timed(lambda: list(map(read, loaded)), WALL) / (len(places) - 1))
            cpus[name].append((CLOCK() - cpu) / (len(places) - 1))
    wall_by, cpu_by = medians(walls), medians(cpus)
    print(
        f"  {what}, {options.workers} workers: {sequences / wall_by['feed']:,.0f} sequences/s, "
        f"{cpu_by['feed'] * 1e3:.2f} ms of CPU a micro-batch; torch's DataLoader {sequences / wall_by['torch']:,.0f} "
        f"and {cpu_by['torch'] * 1e3:.2f}; ratios {wall_by['torch'] / wall_by['feed']:.2f} and "
        f"{cpu_by['torch'] / cpu_by['feed']:.2f}"
    )


def read(micro: MicroBatch | None) -> None:
    for tensor in tensors(micro) if micro is not None else ():
        tensor.clone()


def begin(options: argparse.Namespace, source: MicroBatches, places: list[MicroBatchId]) -> None:
    """The time to the first micro-batch of a pass."""
    passes = places[: 2 * options.workers]

    def first(opened: Callable[[], Loaded]) -> float:
        start = WALL()
        loaded = opened()
        next(loaded)
        seconds = WALL() - start
        for _ in loaded:
            pass
        return seconds

    def forked() -> Loaded:
        with by_torch(source, passes, options.workers) as loaded:
            return loaded

    with Feed([source], num_workers=options.workers, device=CPU) as feed:
        list(feed.micro_batches(source, passes))
        rounds = [(first(forked), first(lambda: feed.micro_batches(source, passes))) for _ in range(options.rounds)]
    new, kept = medians(dict(zip(("a forked pass", "a pass"), zip(*rounds, strict=True), strict=True))).values()
    print(f"  beginning a pass: {kept * 1e3:.0f} ms; forked for it, {new * 1e3:.0f} ms; ratio {new / kept:.1f}")


if __name__ == "__main__":
    main()
