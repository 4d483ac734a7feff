"""Costs that grow with ranks, shards or items, on one processor: checkpoints in pieces, counting windows, resuming.

    python -m benchmarks.growth [--pieces 64 256 1024] [--shards 100 10000] [--windows 100000 400000]

Times are of the processor. `pieces` writes a checkpoint of 400 tensors in as many files as ranks write. It reads the
header of one file and of all, and one rank's part, and writes the whole file of the last checkpoint. `shards` opens a
corpus of so many shards of one text each, whose windows are counted at the first start. `windows` opens one shard with
so many windows at 90 % of an epoch, at the first start and at a later one, in orders 1 and 2.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.rounds import timed
from workbench.core.keyed import shuffled_places
from workbench.core.processes.distributed import World
from workbench.corpora.corpus import Corpus
from workbench.corpora.manifest import finish_corpus
from workbench.corpora.reading.items import CorpusItems
from workbench.corpora.reading.order import OrderNumber
from workbench.corpora.reading.reader import Reader
from workbench.corpora.shards.writer import ShardWriter
from workbench.runs.pieces import Piece, StoredTensors, write_pieces, write_whole

TENSORS, COLUMNS, WINDOW, PARAGRAPH = 400, 4, 300, 20


@dataclasses.dataclass(frozen=True)
class OneOf(World):
    """A rank whose others have empty shares: what one of `size` ranks does by itself."""

    def from_shares(self, total: int, make: Any, join: Any) -> Any:
        return join([make(range(self.rank * total // self.size, (self.rank + 1) * total // self.size))])

    def gather(self, value: Any) -> list[Any]:
        return [value]


def main() -> None:
    options = arguments()
    for count in options.pieces:
        pieces(count)
    for count in options.shards:
        shards(count)
    for count in options.windows:
        windows(count)
    for size in (10**5, 10**7, 10**9):
        places = np.arange(32) * (size // 32)
        seconds = min(timed(lambda: shuffled_places(places, size, 1)) for _ in range(20))  # noqa: B023
        print(f"the places of 32 of {size:.0e} items in order 2: {seconds * 1e3:.2f} ms")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in {"pieces": [64, 256, 1024], "shards": [100, 10_000], "windows": [100_000, 400_000]}.items():
        parser.add_argument(f"--{name}", type=int, nargs="*", default=default)
    return parser.parse_args()


@contextmanager
def own_cache() -> Iterator[Path]:
    """A folder, whose `cache` is used by the library."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["WORKBENCH_CACHE"] = f"{folder}/cache"
        yield Path(folder)


def pieces(ranks: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, f"rank-{rank:05d}.safetensors") for rank in range(ranks)]
        for rank, path in enumerate(files):
            row = torch.full((1, COLUMNS), float(rank))
            write_pieces(path, {f"layers.{number}.weight": Piece(row, (rank, 0)) for number in range(TENSORS)})
        share = timed(lambda: StoredTensors(files[:1], world=OneOf(0, 1)))
        stored = StoredTensors(files)
        headers = timed(lambda: StoredTensors(files))
        part = timed(lambda: [stored.read(name, ((ranks // 2, 0), (1, COLUMNS))) for name in stored.own])
        whole = timed(lambda: write_whole(Path(folder, "whole"), stored))
        print(
            f"{ranks} pieces of {TENSORS} tensors: headers of one file {share * 1e3:.1f} ms, of all {headers:.2f} s; "
            f"one rank's part {part * 1e3:.0f} ms; whole file {whole:.2f} s"
        )


def shards(count: int) -> None:
    with own_cache() as folder:
        place = folder / "corpus"
        with ShardWriter(place / "part.tar", kind="text") as writer:
            writer.add("r0", {"text": "A sentence of a few words. " * 40, "spans": []})
        assert writer.info is not None
        infos = []
        for number in range(count):
            names = f"part-{number:06d}.tar", f"part-{number:06d}.index"
            for source, name in zip((writer.info.name, writer.info.index), names, strict=True):
                os.link(place / source, place / name)
            infos.append(dataclasses.replace(writer.info, name=names[0], index=names[1]))
        finish_corpus(place, kind="text", shards=infos, provenance={"command": "benchmarks.growth"})

        def start(world: World | None = None) -> float:
            corpus = Corpus.open(place)
            return timed(lambda: CorpusItems(corpus, "text", WINDOW, world))

        ranks = start(OneOf(5, 64))
        alone, again = start(), start()
        print(
            f"{count} shards of one text: windows counted by one rank of 64 in {ranks:.2f} s, by one rank in "
            f"{alone:.2f} s, at a later start {again * 1e3:.0f} ms"
        )


def windows(count: int) -> None:
    with own_cache() as folder:
        paragraph = "A sentence of a few words, and another one of them. " * (PARAGRAPH * WINDOW // 52)
        with ShardWriter(folder / "corpus" / "part.tar", kind="text") as writer:
            for number in range(count // PARAGRAPH):
                writer.add(f"r{number}", {"text": paragraph, "spans": []})
        assert writer.info is not None
        finish_corpus(folder / "corpus", kind="text", shards=[writer.info], provenance={"command": "benchmarks.growth"})
        time.sleep(2.1)  # a file that was just written is hashed each time
        found: dict[str, float] = {}

        def start(number: OrderNumber) -> None:
            corpus = Corpus.open(folder / "corpus")
            reader = Reader(
                [(corpus, 1.0)], seed=0, lanes=4, micro_batch_size=32, unit="text", window=WINDOW, order_number=number
            )
            found["items"] = reader.items(0)
            reader.micro_batch(int(0.9 * reader.items(0)) // 128, 0)

        first = timed(lambda: start(2))
        later = {number: min(timed(lambda: start(number)) for _ in range(5)) for number in (1, 2)}  # noqa: B023
        print(
            f"{found['items']:,.0f} windows of one shard: first start {first:.2f} s; a later one in order 1 "
            f"{later[1] * 1e3:.1f} ms, in order 2 {later[2] * 1e3:.1f} ms"
        )


if __name__ == "__main__":
    main()
