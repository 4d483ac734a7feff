"""Reading speed, next to WebDataset over the same shards, JSON lines and an Arrow file of the same records.

    python -m benchmarks.reading [--samples 100000] [--images 4000] [--rounds 5]

All read in one process and one thread, and rounds alternate (`benchmarks.rounds`). The reader has its shuffled order,
all others the order of their files. `raw` are the bytes of a record's members. `decoded` are Python objects: of
WebDataset with JSON parsed, of JSON lines by orjson, of the mapped Arrow file (which Hugging Face's datasets are) by
batches of 32. Resuming is the time from the step number to the first micro-batch at 90 % of an epoch, opening the
corpus included; with windows of 300 characters it includes finding them (1 microsecond a record).
"""

from __future__ import annotations

import argparse
import io
import random
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import orjson
import pyarrow
import webdataset
from PIL import Image

from benchmarks.rounds import compared
from workbench.corpora.corpus import Corpus
from workbench.corpora.manifest import finish_corpus
from workbench.corpora.reading.reader import Reader
from workbench.corpora.shards.writer import ShardWriter
from workbench.sequences.sequence import Sample

BATCH, LANES, SHARD = 32, 4, 10_000


def main() -> None:
    options = arguments()
    with tempfile.TemporaryDirectory() as folder:
        records = [text(random.Random(i)) for i in range(options.samples)]
        texts = write(Path(folder, "text"), "text", records)
        lines = Path(folder, "text.jsonl")
        lines.write_bytes(b"".join(orjson.dumps(record) + b"\n" for record in records))
        others = {"JSON lines, orjson": partial(read_lines, lines), "Arrow": arrow(Path(folder, "text.arrow"), records)}
        report("text", texts, others, options.rounds)
        photographs = [image(i) for i in range(min(options.images, 200))]
        samples = [
            {"image": photographs[i % len(photographs)], "captions": ["a caption"]} for i in range(options.images)
        ]
        images = write(Path(folder, "images"), "image-text", samples)
        report("images", images, {"Arrow": arrow(Path(folder, "images.arrow"), samples)}, options.rounds)
        resumed = compared({window: partial(resume, texts, window) for window in (None, 300)}, options.rounds)
        for window, seconds in resumed.items():
            items = reader_of(texts, window).items(0)
            print(f"opening and resuming at 90 % of an epoch of {items:,} items: {seconds * 1e3:.1f} ms")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=100_000, help="text records")
    parser.add_argument("--images", type=int, default=4_000, help="image records")
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args()


def text(rng: random.Random) -> Sample:
    """A document of natural length: median about 90 words."""
    words = [f"word{int(rng.paretovariate(1.1)) % 5000}" for _ in range(max(1, int(rng.lognormvariate(4.5, 0.9))))]
    joined = " ".join(w + "." * (i % 17 == 16) for i, w in enumerate(words))
    return {"text": joined, "spans": [], "meta": {"source": "benchmark"}}


def image(seed: int) -> bytes:
    """A JPEG of about 20 kB."""
    noise = np.random.default_rng(seed).integers(0, 255, (60, 60, 3), np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(noise).resize((320, 320)).save(buffer, "JPEG", quality=80)
    return buffer.getvalue()


def write(folder: Path, kind: str, samples: list[Sample]) -> Corpus:
    shards = []
    for first in range(0, len(samples), SHARD):
        with ShardWriter(folder / f"part-{first:08d}.tar", kind=kind) as writer:
            for number, sample in enumerate(samples[first : first + SHARD], first):
                writer.add(f"r{number}", sample)
        assert writer.info is not None
        shards.append(writer.info)
    finish_corpus(folder, kind=kind, shards=shards, provenance={"command": "benchmarks.reading"})
    return Corpus.open(folder)


def read_lines(path: Path) -> int:
    with path.open("rb") as lines:
        return sum(1 for _ in map(orjson.loads, lines))


def arrow(path: Path, samples: list[Sample]) -> Callable[[], int]:
    """A reader of the samples as a mapped Arrow file."""
    table = pyarrow.Table.from_pylist([{name: v for name, v in one.items() if name != "spans"} for one in samples])
    with pyarrow.OSFile(str(path), "wb") as file, pyarrow.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)

    def read() -> int:
        mapped = pyarrow.ipc.open_file(pyarrow.memory_map(str(path))).read_all()
        return sum(len(mapped.slice(first, BATCH).to_pylist()) for first in range(0, len(mapped), BATCH))

    return read


def report(name: str, corpus: Corpus, others: dict[str, Callable[[], int]], rounds: int) -> None:
    paths = [str(Path(corpus.place, shard.name)) for shard in corpus.shards]
    contestants: dict[str, Callable[[], int]] = {
        "workbench raw": lambda: read_raw(corpus),
        "webdataset raw": lambda: sum(1 for _ in webdataset.WebDataset(paths, shardshuffle=False)),
        "workbench decoded": lambda: read_decoded(corpus),
        "webdataset decoded": lambda: sum(1 for _ in webdataset.WebDataset(paths, shardshuffle=False).decode()),
        **others,
    }
    seconds = compared(contestants, rounds)
    print(f"{name}: {corpus.records:,} records, {corpus.manifest.bytes / 1e6:.0f} MB")
    for contestant, spent in seconds.items():
        own = seconds["workbench raw" if "raw" in contestant else "workbench decoded"]
        rate = corpus.records / spent
        print(f"  {contestant:18} {rate:10,.0f} records/s, {1e6 / rate:5.1f} us; workbench / this {spent / own:.2f}")


def reader_of(corpus: Corpus, window: int | None = None) -> Reader:
    return Reader(
        [(corpus, 1.0)], seed=0, lanes=LANES, micro_batch_size=BATCH, unit="text" if window else None, window=window
    )


def epoch(corpus: Corpus) -> range:
    return range(corpus.records // BATCH // LANES)


def read_raw(corpus: Corpus) -> int:
    reader = reader_of(corpus)
    batches = (reader.places(number, lane) for number in epoch(corpus) for lane in range(LANES))
    return sum(len([corpus.raw(place.shard, place.item) for place in batch]) for batch in batches)


def read_decoded(corpus: Corpus) -> int:
    reader = reader_of(corpus)
    return sum(len(reader.micro_batch(number, lane)) for number in epoch(corpus) for lane in range(LANES))


def resume(corpus: Corpus, window: int | None) -> None:
    """From the step number to the first micro-batch, with nothing of the corpus open before."""
    reader = reader_of(Corpus.open(corpus.place), window)
    reader.micro_batch(int(0.9 * reader.items(0)) // (BATCH * LANES), 0)


if __name__ == "__main__":
    main()
