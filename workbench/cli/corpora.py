"""The commands `workbench index`, `verify` and `show` for corpora."""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.markup import escape

from workbench.core.errors import WorkbenchError
from workbench.core.files.text_files import read_lines
from workbench.core.files.urls import local_path, url_of
from workbench.core.local_copies import with_urls
from workbench.core.options.bounds import Count, OutputPlace, Place, Seed
from workbench.core.terminal import Terminal
from workbench.corpora.corpus import Corpus
from workbench.corpora.foreign import index_foreign
from workbench.corpora.manifest import FILE_NAME
from workbench.corpora.preview import describe, origin, previews
from workbench.corpora.verify import verify as problems_of

console = Terminal()
LISTED = 20


def index(
    inputs: Annotated[list[Place], typer.Argument(help="Folders with .tar files, or .tar files; also URLs.")],
    output: Annotated[
        OutputPlace | None, typer.Option(help="Where corpus.json and the index files go; by default next to the tars.")
    ] = None,
    kind: Annotated[
        Literal["text", "image-text", "video-text", "speech-text", "triples"] | None,
        typer.Option(help="Default: detected from the first records."),
    ] = None,
    on_error: Annotated[
        Literal["stop", "skip"],
        typer.Option(help="What to do with a record that has no image or damaged text: stop, or skip and count it."),
    ] = "stop",
) -> None:
    """Index an existing WebDataset as a corpus. The tars are read and never rewritten.

    \b
    Examples:
      workbench index cc3m/
      workbench index shards/part-0.tar shards/part-1.tar --output corpora/cc3m --kind image-text
      workbench index laion/ --on-error skip
      workbench index s3://bucket/cc3m --output corpora/cc3m
    """
    places = [url_of(place) or local_path(place) for place in inputs]
    folder = (url_of(output) or local_path(output)) if output is not None else _folder_of(places[0])
    command = shlex.join(["workbench", *with_urls(sys.argv[1:])])
    manifest = index_foreign(places, folder, kind=kind, on_error=on_error, provenance={"command": command})
    console.print(
        f"{escape(str(folder))}: {manifest.records:,} {manifest.kind} records in {len(manifest.shards)} shards"
        + "".join(f"; {count:,} left out: {escape(reason)}" for reason, count in sorted(manifest.dropped.items()))
    )


def _folder_of(place: Path | str) -> Path | str:
    """The folder in which tars lie."""
    if isinstance(place, str):
        return place.rpartition("/")[0] if place.endswith(".tar") else place.rstrip("/")
    return place if place.is_dir() else place.parent


def verify(
    corpus: Annotated[Place, typer.Argument(help="A corpus: a folder or an fsspec URL.")],
    graph: Annotated[
        Path | None,
        typer.Option(help="Check entities against this graph: a triples corpus, or a file with one entity id a line."),
    ] = None,
) -> None:
    """Check a corpus: checksums, key grouping, decodability, spans inside texts, boxes in range, entities in the graph.

    The exit code is 1 when something is wrong.

    \b
    Examples:
      workbench verify corpora/wiki
      workbench verify corpora/wiki-linked --graph corpora/codex
    """
    opened = Corpus.open(corpus)
    found = problems_of(opened, graph_entities(graph) if graph else None)
    counts: Counter[str] = Counter()
    for problem in islice(found, LISTED):
        counts[problem.shard] += 1
        place = f"{problem.shard}, key {problem.key!r}" if problem.key else problem.shard
        console.print(f"[red]wrong:[/] {escape(f'{place}: {problem.reason}')}", highlight=False, soft_wrap=True)
    counts.update(problem.shard for problem in found)
    if counts:
        more = f" ({LISTED} shown)" if counts.total() > LISTED else ""
        shards = {info.name for info in opened.shards}
        graph_store = " and the graph store" if counts.keys() - shards else ""
        where = f"{len(counts.keys() & shards)} of {len(shards)} shards{graph_store}"
        console.print(f"{counts.total():,} problems in {where}{more}")
        raise typer.Exit(1)
    console.print(f"[green]all right:[/] {opened.records:,} records in {len(opened.shards)} shards")


def show(
    corpus: Annotated[Place, typer.Argument(help="A corpus: a folder or an fsspec URL.")],
    samples: Annotated[Count, typer.Option(help="How many records to preview.")] = 3,
    seed: Annotated[Seed, typer.Option(help="Which records.")] = 0,
) -> None:
    """Show a corpus: counts, fields, a few samples, and its origin.

    \b
    Examples:
      workbench show corpora/wiki
      workbench show corpora/flickr8k --samples 5
    """
    opened = Corpus.open(corpus)
    console.print(describe(opened))
    for sample in previews(opened, samples, seed=seed):
        console.print(sample)
    console.print(origin(opened))


def graph_entities(place: Path) -> frozenset[str]:
    """The entity ids of a graph: heads and tails of a triples corpus, or the lines of a text file.

    Raises:
        WorkbenchError: `place` is neither of them.
    """
    if place.is_file():
        return frozenset(line.strip() for line in read_lines(place) if line.strip())
    if not (place / FILE_NAME).is_file():
        raise WorkbenchError(f"{place} is neither a triples corpus nor a file with one entity id a line")
    opened = Corpus.open(place)
    if opened.kind != "triples":
        raise WorkbenchError(f"{place} is a corpus of kind {opened.kind}; --graph needs one of kind triples")
    ids: set[str] = set()
    for number, info in enumerate(opened.shards):
        for record in range(info.records):
            sample = opened.read(number, record)
            ids.add(sample["id"])
            ids.update(triple["tail"] for triple in sample["triples"])
    return frozenset(ids)
