"""Images per second from a list of URLs to shards, against img2dataset, from the same server on this machine.

    python -m benchmarks.fetching [--images 2000] [--rounds 3] [--resize 256] [--img2dataset PATH/TO/img2dataset]

The server is a process of its own that sends noise-like JPEGs of 640 x 480 from memory. Both fetch every image, decode
it, make its shorter side `--resize` pixels and write tars with the caption, with equally many processes and
connections; rounds alternate, and the ratio is that of the medians. Starting the program counts for neither: the time
is that of a list of `--images` less that of a list of `WARM` images. Next to it is the CPU time of an image, which a
busy machine does not change. img2dataset is run as a program, from an environment of its own; without it only
ours is reported.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import multiprocessing
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from benchmarks.rounds import clock_of, medians

WARM, DISTINCT = 20, 64


class Spent(NamedTuple):
    """Seconds, by the clock and of CPU."""

    wall: float
    cpu: float


def main() -> None:
    options = arguments()
    programs = {"workbench": ours}
    if options.img2dataset:
        programs["img2dataset"] = theirs
    spent: dict[str, list[Spent]] = {name: [] for name in programs}
    with serving() as address, tempfile.TemporaryDirectory() as folder:
        lists = [url_list(Path(folder), address, count) for count in (WARM, options.images)]
        output = Path(folder, "out")
        for _ in range(options.rounds):
            for name, program in programs.items():
                few, many = (run(program(path, output, options), output) for path in lists)
                spent[name].append(Spent(many.wall - few.wall, many.cpu - few.cpu))
    count = options.images - WARM
    walls, cpus = (medians({n: [one[i] for one in found] for n, found in spent.items()}) for i in range(2))
    rates = {name: count / wall for name, wall in walls.items()}
    costs = {name: cpu / count for name, cpu in cpus.items()}
    for name, rate in rates.items():
        line = f"{name:12} {rate:8.1f} images/s, {1000 * costs[name]:.1f} ms of CPU an image"
        if "img2dataset" in rates:
            line += f"   x{rate / rates['img2dataset']:.2f}, x{costs['img2dataset'] / costs[name]:.2f}"
        print(line)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--resize", type=int, default=256)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--connections", type=int, default=32, help="of each process")
    parser.add_argument("--img2dataset", help="the program, in an environment that has it")
    return parser.parse_args()


def ours(urls: Path, output: Path, options: argparse.Namespace) -> list[str]:
    fetch = ["--fetch", "--private-hosts", "--connections", str(options.connections), "--resize", str(options.resize)]
    shards = ["--workers", str(options.processes), "--shard-size", "500", "--output", str(output)]
    return [sys.executable, "-m", "workbench", "prepare", "image-text", str(urls), *fetch, *shards]


def theirs(urls: Path, output: Path, options: argparse.Namespace) -> list[str]:
    columns = ["--input_format", "tsv", "--url_col", "url", "--caption_col", "caption"]
    size = ["--image_size", str(options.resize), "--resize_mode", "keep_ratio", "--resize_only_if_bigger", "True"]
    shards = ["--number_sample_per_shard", "500", "--output_format", "webdataset", "--output_folder", str(output)]
    counts = ["--processes_count", str(options.processes), "--thread_count", str(options.connections)]
    return [options.img2dataset, "--url_list", str(urls), *columns, *size, *shards, *counts]


def run(command: list[str], output: Path) -> Spent:
    """What a program and its processes took; what it wrote goes."""
    clock = clock_of(threads=2)
    started, before = clock(), cpu()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    spent = Spent(clock() - started, cpu() - before)
    if done.returncode or not any(output.glob("*.tar")):
        raise SystemExit(f"{command[0]} failed: {done.stderr[-2000:]}")
    shutil.rmtree(output)
    return spent


def cpu() -> float:
    """Seconds of all processes that have ended; the server has not."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def url_list(folder: Path, address: str, count: int) -> Path:
    path = folder / f"list-{count}.tsv"
    path.write_text("url\tcaption\n" + "".join(f"{address}/{i}.jpg\tcaption number {i}\n" for i in range(count)))
    return path


@contextlib.contextmanager
def serving() -> Iterator[str]:
    """The address of a server in another process."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.Process(target=serve, args=(there,), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{here.recv()}"
    finally:
        process.terminate()
        process.join()


def serve(connection: Connection) -> None:
    """Answers every request with one of some images, until it is ended; connections stay open."""
    bodies = [jpeg(seed) for seed in range(DISTINCT)]
    answers = [
        b"HTTP/1.1 200 OK\r\nContent-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n" % len(b) + b for b in bodies
    ]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(answers[hash(head.split(b" ", 2)[1]) % DISTINCT])
                await writer.drain()
        writer.close()

    async def forever() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=1024)
        connection.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(forever())


def jpeg(seed: int, width: int = 640, height: int = 480, mode: str = "RGB", **options: Any) -> bytes:
    """Noise of 8 x 8 pixels, smoothed: as many bytes as a rich photograph has, 92 kB at 640 x 480."""
    noise = np.random.default_rng(seed).integers(0, 255, (height // 8, width // 8, 3), np.uint8)
    image = Image.fromarray(noise).resize((width, height), Image.Resampling.BICUBIC)
    buffer = io.BytesIO()
    image.convert(mode).save(buffer, "JPEG", quality=88, **options)
    return buffer.getvalue()


if __name__ == "__main__":
    main()
