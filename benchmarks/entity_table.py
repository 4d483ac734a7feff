"""What a table of pretrained entity vectors costs a process: the time to open it, and the memory it has for itself.

    python -m benchmarks.entity_table [--entities 1000000] [--size 100] [--batches 100]

Each line is measured in a process of its own. `ids` is the transform `kg.entity_stream` alone, what a worker of the
loader
holds; `vectors` the embedding `kg.entity_table`, what a rank holds; both look rows up for the batches. Next to them
stand a dict of all ids and a copy of the vectors. Memory is what the process allocated (RssAnon of Linux) above what
it had before; pages of the file are none of that: processes share them, and the system can take them back. The
checksum is computed at the first opening alone, which is a line of its own.
"""

from __future__ import annotations

import argparse
import multiprocessing
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from kg.models.embeddings.entity_table import EntityTableEmbedding
from kg.sequences.transforms.entity_stream import EntityStreamTransform
from kg.vectors.vectors import GraphVectors, load_vectors, save_vectors

ROWS = 640
"""Mentions of a batch."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entities", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--batches", type=int, default=100)
    options = parser.parse_args()
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
    before, start = allocated(), time.perf_counter()
    look_up = work(path)
    opened = time.perf_counter()
    for _ in range(batches):
        look_up(draws.integers(count, size=ROWS))
    batch = (time.perf_counter() - opened) / batches
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


WORKS = {
    "the first opening (checksum)": first,
    "ids": stream,
    "ids, as a dict": dictionary,
    "vectors": table,
    "vectors, as a copy": copied,
}

if __name__ == "__main__":
    main()
