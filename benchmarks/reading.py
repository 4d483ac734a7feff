"""Reading speed, against plain WebDataset iteration over the same shards, in the same run.

    python -m benchmarks.reading [--samples 100000] [--images 4000] [--rounds 5]

Rounds alternate between the two and the ratio is that of the medians. `raw` compares bytes with bytes (a dict of
members per sample) in one process: the reader in its shuffled order, WebDataset in the order of the files. `decoded`
is the reader's samples (JSON parsed, spans), for which WebDataset would need more work still. Resuming is the time
from the step number to the first micro-batch at 90 % of an epoch, opening the corpus included; with windows of 300
characters it includes finding them (1 microsecond a record).
"""

from __future__ import annotations

import argparse
import io
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import webdataset
from PIL import Image

from workbench.corpora.corpus import Corpus
from workbench.corpora.manifest import finish_corpus
from workbench.corpora.reading.reader import Reader
from workbench.corpora.shards.writer import ShardWriter
from workbench.sequences.sequence import Sample

BATCH, LANES, SHARD = 32, 4, 10_000


def main() -> None:
    options = arguments()
    with tempfile.TemporaryDirectory() as folder:
        texts = write(Path(folder, "text"), "text", [text(random.Random(i)) for i in range(options.samples)])
        report("text", texts, options.rounds)
        photographs = [image(i) for i in range(min(options.images, 200))]
        samples = [
            {"image": photographs[i % len(photographs)], "captions": ["a caption"]} for i in range(options.images)
        ]
        report("images", write(Path(folder, "images"), "image-text", samples), options.rounds)
        for window in (None, 300):
            seconds = statistics.median(resume(texts, window) for _ in range(options.rounds))
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


def report(name: str, corpus: Corpus, rounds: int) -> None:
    paths = [str(Path(corpus.place, shard.name)) for shard in corpus.shards]
    contestants: dict[str, Callable[[], int]] = {
        "webdataset raw": lambda: sum(1 for _ in webdataset.WebDataset(paths, shardshuffle=False)),
        "workbench raw": lambda: read_raw(corpus),
        "workbench decoded": lambda: read_decoded(corpus),
    }
    rates: dict[str, list[float]] = {contestant: [] for contestant in contestants}
    for _ in range(rounds):
        for contestant, run in contestants.items():
            started = time.perf_counter()
            count = run()
            rates[contestant].append(count / (time.perf_counter() - started))
    medians = {contestant: statistics.median(values) for contestant, values in rates.items()}
    print(f"{name}: {corpus.records:,} records, {corpus.manifest.bytes / 1e6:.0f} MB")
    for contestant, rate in medians.items():
        print(f"  {contestant:18} {rate:10,.0f} samples/s   x{rate / medians['webdataset raw']:.1f}")


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


def resume(corpus: Corpus, window: int | None) -> float:
    """Seconds from the step number to the first micro-batch, with nothing of the corpus open before."""
    started = time.perf_counter()
    reader = reader_of(Corpus.open(corpus.place), window)
    reader.micro_batch(int(0.9 * reader.items(0)) // (BATCH * LANES), 0)
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
