"""Memory of `workbench prepare triples` against the size of the graph.

    python -m benchmarks.graph_memory [--millions 0.5 1 2 5] [--format tsv nt] [--folder FOLDER]

Triples are made up as in Wikidata5M: a fifth as many entities, tails that follow a power law, 800 relations. `tsv` has
them in any order, `nt` sorted by head with a label for each entity, as dumps are. The table has the greatest sum over
the command's processes of the memory that only they can give back (`RssAnon`; pages of files, which the system takes
back where it needs them, are listed next to it), the time, and the size of the graph store and of the corpus.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil
from rich.console import Console
from rich.table import Table

RELATIONS = 800
BLOCK = 1_000_000
ENTITY = "<http://www.wikidata.org/entity/Q{}>"
PROPERTY = "<http://www.wikidata.org/prop/direct/P{}>"
LABEL = '{} <http://www.w3.org/2000/01/rdf-schema#label> "Entity number {}"@en .\n'


class Peak(NamedTuple):
    """Greatest sums over the processes, in bytes."""

    own: int
    files: int


def main() -> None:
    options = arguments()
    table = Table(title="workbench prepare triples: peak memory of all its processes")
    for column in ("format", "triples", "file MB", "own MB", "file pages MB", "minutes", "store MB", "corpus MB"):
        table.add_column(column, justify="right")
    for kind in options.format:
        for millions in options.millions:
            with tempfile.TemporaryDirectory(dir=options.folder) as folder:
                row = measured(Path(folder), kind, int(millions * 1e6))
            table.add_row(kind, f"{millions * 1e6:,.0f}", *row)
            Console().print(kind, millions, *row)
    Console().print(table)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--millions", type=float, nargs="+", default=[0.5, 1, 2, 5])
    parser.add_argument("--format", nargs="+", choices=["tsv", "nt"], default=["tsv", "nt"])
    parser.add_argument("--folder", type=Path, help="where the files are made, and removed again")
    return parser.parse_args()


def measured(folder: Path, kind: str, triples: int) -> list[str]:
    raw, corpus = folder / f"graph.{kind}", folder / "corpus"
    write(raw, kind, triples)
    started = time.monotonic()
    command = [sys.executable, "-m", "workbench", "prepare", "triples", str(raw), "--output", str(corpus)]
    with subprocess.Popen(command, env={**os.environ, "TMPDIR": str(folder)}) as process:
        peak = watched(process)
    if process.returncode:
        raise SystemExit(process.returncode)
    minutes = (time.monotonic() - started) / 60
    store = size(corpus / "graph")
    sizes = raw.stat().st_size, *peak
    return [*(f"{n / 1e6:,.0f}" for n in sizes), f"{minutes:.1f}", *(f"{n / 1e6:,.0f}" for n in (store, size(corpus)))]


def write(path: Path, kind: str, triples: int) -> None:
    """The made-up graph, a million triples at a time."""
    rng = np.random.default_rng(0)
    entities = max(1, triples // 5)
    with path.open("w") as file:
        for begin in range(0, triples, BLOCK):
            count = min(BLOCK, triples - begin)
            heads = rng.integers(entities, size=count)
            tails = (entities * rng.random(count) ** 3).astype(np.int64)
            relations = (RELATIONS * rng.random(count) ** 4).astype(np.int64)
            if kind == "tsv":
                rows = zip(heads.tolist(), relations.tolist(), tails.tolist(), strict=True)
                file.writelines(f"Q{h}\tP{r}\tQ{t}\n" for h, r, t in rows)
            else:
                file.writelines(statements(begin // 5 + np.sort(heads % (count // 5 or 1)), relations, tails))


def statements(heads: np.ndarray, relations: np.ndarray, tails: np.ndarray) -> Iterator[str]:
    before = -1
    for head, relation, tail in zip(heads.tolist(), relations.tolist(), tails.tolist(), strict=True):
        name = ENTITY.format(head)
        if head != before:
            yield LABEL.format(name, head)
            before = head
        yield f"{name} {PROPERTY.format(relation)} {ENTITY.format(tail)} .\n"


def watched(process: subprocess.Popen) -> Peak:
    """Looks at the processes ten times a second until the command ends."""
    own = files = 0
    while process.poll() is None:
        found = [memory(pid) for pid in tree(process.pid)]
        own, files = max(own, sum(a for a, _ in found)), max(files, sum(b for _, b in found))
        time.sleep(0.1)
    return Peak(own, files)


def tree(pid: int) -> list[int]:
    try:
        return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    except psutil.NoSuchProcess:
        return []


def memory(pid: int) -> tuple[int, int]:
    """Bytes of a process's own and of files that it has mapped; nothing of one that has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0, 0
    row = {name: int(rest.split()[0]) * 1024 for name, _, rest in (x.partition(":") for x in lines) if "Rss" in name}
    return row.get("RssAnon", 0), row.get("RssFile", 0)


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


if __name__ == "__main__":
    main()
