"""Reading a corpus from an object store, next to webdataset on the same server, and next to local files.

    python -m benchmarks.object_store [--shards 6] [--megabytes 25] [--rounds 3]

The server is moto's S3 on this machine (`pip install 'moto[server]'`), in a process of its own. Every contestant reads
all members of all records as bytes in the order of the files, in one process. `first` is the time from opening to the
first record: workbench compares the checksum of the record or of its shard, webdataset compares none. A cold cache
is empty, and a warm one has every shard. `reader` is a Reader's shuffled micro-batches, which touch eight shards from
the first on. Libraries are imported, and the client of the store is made, before the clock starts. webdataset reads
through `pipe:curl` of presigned addresses, and through fsspec.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec
import webdataset
from webdataset.gopen import gopen_schemes

from benchmarks.fetching import jpeg
from benchmarks.rounds import clock_of, medians
from workbench.core.files.transfers import facts_of
from workbench.corpora.corpus import Corpus
from workbench.corpora.manifest import finish_corpus
from workbench.corpora.opened_manifests import forget_manifests
from workbench.corpora.reading.reader import Reader
from workbench.corpora.shards.writer import ShardWriter

BUCKET, RECORD = "bucket", 40_000
CLOCK = clock_of(threads=2)


def main() -> None:
    options = arguments()
    with tempfile.TemporaryDirectory() as folder, server():
        local = write(Path(folder, "corpus"), options.shards, options.megabytes)
        url, signed = upload(local)
        cache = Path(folder, "cache")
        contestants = {
            "webdataset pipe:curl": lambda: raw_webdataset([f"pipe:curl -s '{address}'" for address in signed]),
            "webdataset fsspec": lambda: raw_webdataset([f"{url}/{info.name}" for info in local.shards]),
            "workbench cold": lambda: raw_corpus(url, cache, cold=True),
            "workbench warm": lambda: raw_corpus(url, cache),
            "workbench local": lambda: raw_corpus(local.place, cache),
            "workbench reader cold": lambda: read(url, cache, cold=True),
            "workbench reader warm": lambda: read(url, cache),
            "workbench reader local": lambda: read(local.place, cache),
        }
        report(contestants, local.manifest.bytes, options.rounds)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=int, default=6)
    parser.add_argument("--megabytes", type=int, default=25, help="of a shard")
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


@contextmanager
def server() -> Iterator[None]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.environ |= {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
    }
    try:
        while socket.socket().connect_ex(("127.0.0.1", port)):
            time.sleep(0.1)
        yield
    finally:
        running.kill()
        running.wait()


def write(folder: Path, shards: int, megabytes: int) -> Corpus:
    """A corpus of photographs."""
    infos, images = [], [jpeg(seed, 416, 320) for seed in range(64)]
    for shard in range(shards):
        with ShardWriter(folder / f"part-{shard:06d}.tar", kind="image-text") as writer:
            for record in range(megabytes * 10**6 // RECORD):
                writer.add(f"r{shard}-{record}", {"image": images[record % len(images)], "captions": ["a caption"]})
        assert writer.info is not None
        infos.append(writer.info)
    finish_corpus(folder, kind="image-text", shards=infos, provenance={"command": "benchmarks.object_store"})
    return Corpus.open(folder)


def upload(corpus: Corpus) -> tuple[str, list[str]]:
    """The corpus's URL, and presigned addresses of its shards."""
    files = fsspec.filesystem("s3")
    files.mkdir(BUCKET)
    for path in sorted(Path(corpus.place).iterdir()):
        files.pipe_file(f"{BUCKET}/corpus/{path.name}", path.read_bytes())
    gopen_schemes["s3"] = lambda url, mode="rb", bufsize=8192: fsspec.open(url, mode).open()
    return f"s3://{BUCKET}/corpus", [files.sign(f"{BUCKET}/corpus/{info.name}") for info in corpus.shards]


Times = tuple[float, float]


def timed(records: Iterator[Any], started: float) -> Times:
    """Seconds to the first record and to the last."""
    next(records)
    first = CLOCK() - started
    for _ in records:
        pass
    return first, CLOCK() - started


def raw_webdataset(urls: list[str]) -> Times:
    started = CLOCK()
    return timed(iter(webdataset.WebDataset(urls, shardshuffle=False)), started)


def begun(cache: Path, cold: bool) -> float:
    forget_manifests()
    if cold:
        shutil.rmtree(cache, ignore_errors=True)
    return CLOCK()


def raw_corpus(place: str, cache: Path, *, cold: bool = False) -> Times:
    started = begun(cache, cold)
    corpus = Corpus.open(place, cache=cache)

    def records() -> Iterator[dict[str, bytes]]:
        for shard, info in enumerate(corpus.shards):
            corpus.expect_next(shard)
            for record in range(info.records):
                yield corpus.raw(shard, record)

    return timed(records(), started)


def read(place: str, cache: Path, *, cold: bool = False) -> Times:
    """The micro-batches of one epoch."""
    started = begun(cache, cold)
    corpus = Corpus.open(place, cache=cache)
    reader = Reader([(corpus, 1.0)], seed=0, lanes=1, micro_batch_size=32)
    return timed((reader.micro_batch(number, 0) for number in range(corpus.records // 32)), started)


def report(contestants: dict[str, Callable[[], Times]], size: int, rounds: int) -> None:
    found: dict[str, list[Times]] = {name: [] for name in contestants}
    facts_of(f"s3://{BUCKET}/corpus/corpus.json")
    for _ in range(rounds):
        for name, run in contestants.items():
            found[name].append(run())
    print(f"{size / 1e6:.0f} MB; medians of {rounds} rounds")
    firsts, wholes = (medians({name: [one[i] for one in times] for name, times in found.items()}) for i in range(2))
    first, whole = firsts["webdataset pipe:curl"], wholes["webdataset pipe:curl"]
    for name, to_first in firsts.items():
        to_last = wholes[name]
        rate = size / to_last / 1e6
        print(
            f"  {name:24} first {to_first * 1e3:7.0f} ms  x{to_first / first:5.2f}   "
            f"all {rate:7.0f} MB/s  x{whole / to_last:5.2f}"
        )


if __name__ == "__main__":
    main()
