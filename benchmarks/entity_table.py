"""What a table of entity vectors costs a process: the time to open it, and the memory it has for itself.

    python -m benchmarks.entity_table [--entities 1000000] [--size 100] [--batches 100]
    python -m benchmarks.entity_table --trained 100000 5000000 [--size 64] [--ranks 4] [--batches 20]

Each line is measured in a process of its own. `ids` is the transform `kg.entity_stream` alone, what a worker of the
loader
holds; `vectors` the embedding `kg.entity_table`, what a rank holds; both look rows up for the batches. Next to them
stand a dict of all ids and a copy of the vectors. Memory is what the process allocated (RssAnon of Linux) above what
it had before; pages of the file are none of that: processes share them, and the system can take them back. The
checksum is computed at the first opening alone, which is a line of its own.

With `--trained`, tables of these numbers of rows are divided over ranks (gloo, on this machine) and trained: a step
looks up, sends back and updates the rows of two micro-batches. A line has the seconds to draw the first values, the
median time of a step with the processor's, and the memory of the rank that has most. With `--limit` a rank may allocate
no more than this share of the table and its moments.
"""

from __future__ import annotations

import argparse
import multiprocessing
import re
import resource
import socket
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from benchmarks.rounds import clock_of
from kg.models.embeddings.entity_table import EntityTableEmbedding
from kg.sequences.transforms.entity_stream import EntityStreamTransform
from kg.vectors.vectors import GraphVectors, load_vectors, save_vectors
from workbench.core.processes.distributed import World
from workbench.optimization.clipping import clip_gradients
from workbench.optimization.optimizers import Adamw
from workbench.parallel.sharded_table import table_part
from workbench.parallel.table_rows import TableSteps
from workbench.sequences.batch import MicroBatch
from workbench.sequences.fetched_rows import FetchedRows

CLOCK = clock_of(threads=2)
ROWS = 640
"""Mentions of a batch."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entities", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--batches", type=int, default=100)
    parser.add_argument("--trained", type=int, nargs="+", help="rows of tables that are trained")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--limit", type=float, help="the share of a trained table that a rank may allocate")
    options = parser.parse_args()
    if options.trained:
        for rows in options.trained:
            found = on_ranks(options.ranks, rows, options.size, options.batches, options.limit)
            if failures := [rank.failure for rank in found if rank.failure]:
                print(f"{rows:>12,} rows of size {options.size}, {options.ranks} ranks: {failures[0]}")
                continue
            step, busy = (statistics.median(times) * 1e3 for times in zip(*found[0].steps, strict=True))
            print(
                f"{rows:>12,} rows of size {options.size}, {options.ranks} ranks: filled in "
                f"{max(rank.filled for rank in found):6.1f} s, {step:7.2f} ms a step ({busy:.2f} of the processor), "
                f"at most {max(rank.own for rank in found):8.1f} of {3 * rows * options.size / 2**18:,.1f} MiB"
            )
        return
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "entities.safetensors"))
        ids = [f"Q{number}" for number in range(options.entities)]
        vectors = torch.randn(options.entities, options.size)
        save_vectors(GraphVectors(ids, vectors, ["P1"], torch.zeros(1, options.size)), path)
        print(f"{options.entities:,} entities of size {options.size}: {Path(path).stat().st_size / 2**20:,.0f} MiB")
        del ids, vectors
        time.sleep(3)  # the checksum of a file younger than that is not remembered
        for name, work in WORKS.items():
            process = multiprocessing.get_context("spawn").Process(
                target=measure, args=(name, work, path, options.entities, options.batches)
            )
            process.start()
            process.join()


def measure(
    name: str, work: Callable[[str], Callable[[np.ndarray], object]], path: str, count: int, batches: int
) -> None:
    """Print the seconds and the memory of opening a table and of asking it for the rows of some batches."""
    torch.set_num_threads(1)
    draws = np.random.default_rng(0)
    clock = clock_of()
    before, start = allocated(), clock()
    look_up = work(path)
    opened = clock()
    for _ in range(batches):
        look_up(draws.integers(count, size=ROWS))
    batch = (clock() - opened) / batches
    own = (allocated() - before) / 2**10
    print(f"{name:<32} opened in {(opened - start) * 1e3:8.1f} ms, {batch * 1e3:6.2f} ms a batch, {own:8.1f} MiB own")


def allocated() -> int:
    """KiB that this process holds in memory and that belong to no file."""
    found = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"))
    assert found is not None
    return int(found[1])


def first(path: str) -> Callable[[np.ndarray], object]:
    load_vectors(path)
    return lambda rows: None


def stream(path: str) -> Callable[[np.ndarray], object]:
    found = EntityStreamTransform(path).rows
    return lambda rows: [found[f"Q{row}"] for row in rows.tolist()]


def dictionary(path: str) -> Callable[[np.ndarray], object]:
    found = {entity: row for row, entity in enumerate(load_vectors(path).ids)}
    return lambda rows: [found[f"Q{row}"] for row in rows.tolist()]


def table(path: str) -> Callable[[np.ndarray], object]:
    embedding = EntityTableEmbedding(path)
    return lambda rows: embedding({"entity_ids": torch.from_numpy(rows + 1)})


def copied(path: str) -> Callable[[np.ndarray], object]:
    embedding = EntityTableEmbedding(load_vectors(path).vectors.clone())
    return lambda rows: embedding({"entity_ids": torch.from_numpy(rows + 1)})


@dataclass
class RankCost:
    """The seconds to draw the first values, those of each step with the processor's, and MiB that the rank allocated.

    `failure` says what failed.
    """

    filled: float = 0.0
    steps: list[tuple[float, float]] = field(default_factory=list)
    own: float = 0.0
    failure: str = ""


def on_ranks(ranks: int, rows: int, size: int, steps: int, limit: float | None = None) -> list[RankCost]:
    """Train a table on ranks, each a process of its own; the costs of each.

    Args:
        limit: a rank may allocate this share of the table and its moments.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    costs = context.SimpleQueue()
    given = (ranks, port, rows, size, steps, limit, costs)
    processes = [context.Process(target=train, args=(rank, *given)) for rank in range(ranks)]
    for process in processes:
        process.start()
    try:
        found = [costs.get() for _ in processes]
    finally:
        for process in processes:
            process.join(30)
            process.kill()
    return found


def train(rank: int, ranks: int, port: int, rows: int, size: int, steps: int, limit: float | None, costs: Any) -> None:
    """A rank of `on_ranks`."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)
    cost, before = RankCost(), allocated()
    if limit is not None:
        data = re.search(r"VmData:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"))
        assert data is not None
        most = int(data[1]) * 2**10 + int(limit * 3 * rows * size * 4)
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    try:
        start = CLOCK()
        with table_part(rank, ranks):
            embedding = EntityTableEmbedding(rows, trainable=True, hidden_size=size, rows="sharded")
        embedding.initialise(0.02)
        cost.filled = CLOCK() - start
        cost.steps = _trained_steps(embedding, World(rank, ranks), rows, steps)
        cost.own = (allocated() - before) / 2**10
    except (RuntimeError, MemoryError) as error:
        cost.failure = str(error).splitlines()[0]
    costs.put(cost)


def _trained_steps(embedding: EntityTableEmbedding, world: World, rows: int, steps: int) -> list[tuple[float, float]]:
    table = embedding.table
    assert table is not None
    rounds, draws = TableSteps(nn.ModuleDict({"entity": embedding}), world), np.random.default_rng(world.rank)
    groups = {"start_step": 0, "lr_factor": 1.0, "decayed": False, "weight_decay": 0.0}
    optimizer, taken = Adamw([{"params": [table.weight], **groups}], 1e-3), []
    for step in range(steps):
        asked = [torch.from_numpy(draws.integers(rows, size=ROWS)) for _ in range(2)]
        dist.barrier()
        start, busy = CLOCK(), time.thread_time()
        rounds.look_up(MicroBatch("", {}, {}, tables={"entity": FetchedRows(each.unique())}) for each in asked)
        for each in asked:
            embedding({"entity_ids": each + 1}).square().sum().backward()
        rounds.reduce(optimizer, step)
        clip_gradients([], 1.0, rounds.row_gradients)
        rounds.update(optimizer)
        taken.append((CLOCK() - start, time.thread_time() - busy))
    return taken[len(taken) // 4 :]  # the first steps touch pages that nobody has touched


WORKS = {
    "the first opening (checksum)": first,
    "ids": stream,
    "ids, as a dict": dictionary,
    "vectors": table,
    "vectors, as a copy": copied,
}

if __name__ == "__main__":
    main()
