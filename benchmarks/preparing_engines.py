"""Preparation on the local engine and on Ray, in one run, and what many nodes would do with the recorded unit times.

    python -m benchmarks.preparing_engines measure --output times.json
    python -m benchmarks.preparing_engines simulate benchmarks/preparing_times.json

`measure` prepares the same documents with each engine, compares the bytes, and records the seconds of every unit, of
the driver for every unit, and the overhead of a unit that does nothing. `simulate` draws from these records: a driver
that cuts, sends and receives one unit after another, and workers that take them in order.
"""

from __future__ import annotations

import argparse
import hashlib
import heapq
import json
import os
import pickle
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.rounds import clock_of
from pipelines.preparing.chunks import Conversion, Limits, cut_chunks, work
from pipelines.preparing.engines.engine import Engine
from pipelines.preparing.engines.local import LocalEngine
from pipelines.preparing.engines.ray_core import AHEAD, RayEngine
from pipelines.preparing.runner import check
from pipelines.readers.text.plain_text import PlainText
from pipelines.stages.text_cleaning import NormaliseText

EMPTY_UNITS = 500
CORES = 16


def documents(path: Path, count: int) -> None:
    """Documents of 20 to 400 drawn words, 1.2 kB on average."""
    rng, words = random.Random(0), [f"w{i}" for i in range(20_000)]
    with path.open("w") as file:
        for _ in range(count):
            file.write(" ".join(rng.choices(words, k=rng.randint(20, 400))) + "\n\n")


def digest(folder: Path) -> str:
    total = hashlib.sha256()
    for path in sorted(folder.glob("part-*")):
        total.update(path.name.encode() + path.read_bytes())
    return total.hexdigest()[:16]


def command(text: Path, output: Path, shard_size: int, *options: str) -> dict[str, Any]:
    """Seconds of a whole `workbench prepare text`, start of Python and of Ray included."""
    call = [sys.executable, "-m", "workbench", "prepare", "text", str(text), "-o", str(output)]
    started = time.monotonic()
    subprocess.run([*call, "--shard-size", str(shard_size), *options], check=True, stdout=subprocess.DEVNULL)
    return {"options": " ".join(options), "seconds": round(time.monotonic() - started, 2), "bytes": digest(output)}


def nothing(context: None, number: int) -> int:
    return number


def overhead(engine: Engine) -> float:
    """Seconds of a unit that does nothing, once workers have started."""
    with engine.opened():
        list(engine.each(nothing, None, range(10)))
        values = engine.each(nothing, None, range(EMPTY_UNITS))
        next(values)
        started = time.monotonic()
        count = sum(1 for _ in values)
        return (time.monotonic() - started) / count


def units(text: Path, output: Path, shard_size: int) -> dict[str, Any]:
    """Seconds of each unit, and of the driver for it: cutting, and pickling records or their place."""
    conversion = Conversion(PlainText(), (NormaliseText("NFC"),))
    plan = check(conversion, [text], output, "text", limits=Limits(shard_size), engine=LocalEngine(1))
    output.mkdir()
    rows: dict[str, list[float]] = {"cut": [], "pickle_records": [], "pickle_place": [], "unit": []}
    sizes = [0, 0]
    clock = clock_of()
    chunks, started = cut_chunks(plan.task.conversion.reader.records(plan.inputs), plan.limits), clock()
    for chunk in chunks:
        moments = [started, clock()]
        sent = chunk.to_send()
        for number, what in enumerate((chunk, sent)):
            sizes[number] = max(sizes[number], len(pickle.dumps(what, protocol=5)))
            moments.append(clock())
        work(plan.task, sent)
        moments.append(clock())
        for name, begin, end in zip(rows, moments[:-1], moments[1:], strict=True):
            rows[name].append(round(end - begin, 6))
        started = clock()
    return {"seconds": rows, "bytes_of_records": sizes[0], "bytes_of_place": sizes[1]}


def measure(output: Path, count: int, shard_size: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        documents(folder / "docs.txt", count)
        ways = [("--workers", "1"), ("--workers", "2"), ("--engine", "ray", "--workers", "2")]
        runs = [command(folder / "docs.txt", folder / f"out-{i}", shard_size, *way) for i, way in enumerate(ways)]
        assert len({run["bytes"] for run in runs}) == 1, runs
        made = units(folder / "docs.txt", folder / "units", shard_size)
    ray_seconds = overhead(RayEngine(2))
    made |= {
        "documents": count,
        "shard_size": shard_size,
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "runs": runs,
        "overhead": {"local": round(overhead(LocalEngine(2)), 6), "ray": round(ray_seconds, 6)},
    }
    output.write_text(json.dumps(made, indent=1) + "\n")
    for run in runs:
        print(f"{run['options']:30} {run['seconds']:8.2f} s   {run['bytes']}")
    print(f"a unit that does nothing: local {made['overhead']['local']:.6f} s, Ray {ray_seconds:.6f} s")
    for name, seconds in made["seconds"].items():
        print(f"{name:16} median {statistics.median(seconds):.6f} s, largest {max(seconds):.6f} s")
    print(f"bytes sent: records {made['bytes_of_records']:,}, place {made['bytes_of_place']:,}")


def simulated(workers: int, drawn: list[tuple[float, float]], ahead: int) -> tuple[float, float]:
    """(seconds in all, share of them in which the driver works).

    Args:
        drawn: seconds of the driver and of the worker for each unit.
        ahead: units that are held at most: sent, and not yet fetched in order.
    """
    free = [0.0] * workers
    ended: list[float] = []
    driver = busy = latest = 0.0
    for number, (cost, seconds) in enumerate(drawn):
        if number >= ahead:  # the first unit that was not fetched has to end
            latest = max(latest, ended[number - ahead])
            driver = max(driver, latest)
        driver, busy = driver + cost, busy + cost
        begin = max(driver, heapq.heappop(free))
        heapq.heappush(free, begin + seconds)
        ended.append(begin + seconds)
    return max(ended), busy / max(ended)


def simulate(record: Path, count: int, times: float) -> None:
    """Args: times: as large as this are the units, compared with the recorded ones."""
    made = json.loads(record.read_text())
    rows, empty = made["seconds"], made["overhead"]["ray"]
    for name in ("cut", "pickle_records", "unit"):
        rows[name] = [seconds * times for seconds in rows[name]]
    rng = random.Random(0)
    picks = [rng.randrange(len(rows["unit"])) for _ in range(count)]
    costs = {
        "records are sent": lambda i: rows["cut"][i] + 2 * rows["pickle_records"][i] + empty,
        "places are sent": lambda i: rows["cut"][i] + rows["pickle_place"][i] + empty,
        "cut before (--part)": lambda i: rows["pickle_place"][i] + empty,
    }
    print(f"{count:,} units of {statistics.mean(rows['unit']):.3f} s, {CORES} workers a node")
    print(f"{'nodes':>6} " + "".join(f"{name:>34}" for name in costs))
    for nodes in (1, 2, 5, 10, 20, 50, 100):
        workers, cells = nodes * CORES, []
        for cost in costs.values():
            drawn = [(cost(i), rows["unit"][i]) for i in picks]
            seconds, busy = simulated(workers, drawn, AHEAD * workers)
            ideal = sum(unit for _, unit in drawn) / workers
            cells.append(f"{seconds:10,.1f} s {ideal / seconds:6.0%} driver {busy:4.0%}")
        print(f"{nodes:6} " + "".join(f"{cell:>34}" for cell in cells))
    for name, cost in costs.items():
        wall = statistics.mean(rows["unit"]) / statistics.mean(map(cost, range(len(rows["unit"]))))
        print(f"{name}: the driver is the wall from {wall:,.0f} workers on")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ways = parser.add_subparsers(dest="way", required=True)
    one = ways.add_parser("measure")
    one.add_argument("--output", type=Path, required=True)
    one.add_argument("--documents", type=int, default=24_000)
    one.add_argument("--shard-size", type=int, default=400)
    other = ways.add_parser("simulate")
    other.add_argument("record", type=Path)
    other.add_argument("--units", type=int, default=80_000)
    other.add_argument("--times", type=float, default=1.0, help="units as many times as large as the recorded ones")
    given = parser.parse_args()
    if given.way == "measure":
        measure(given.output, given.documents, given.shard_size)
    else:
        simulate(given.record, given.units, given.times)


if __name__ == "__main__":
    main()
