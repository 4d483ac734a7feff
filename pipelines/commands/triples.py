"""`prepare triples`: a knowledge graph -> a triples corpus, and the graph store beside it."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from pipelines.commands.console import run
from pipelines.commands.options import Reading, ShardSize
from pipelines.preparing.chunks import Job
from pipelines.preparing.corpus_reader import all_samples
from pipelines.preparing.kg_extra import needs_kg
from pipelines.preparing.progress import console
from pipelines.readers.reader import RawReader
from pipelines.stages import Stage
from workbench.corpora.corpus import Corpus
from workbench.errors import WorkbenchError
from workbench.files.drafts import clear_drafts
from workbench.files.lock import locked
from workbench.options.bounds import Location
from workbench.options.command import command

if TYPE_CHECKING:
    from kg.graph.store import GraphStore

log = logging.getLogger(__name__)
WORDS = "ids_are_words"
"""The fact on a corpus (`Manifest.about`) that its entities are called by their ids where they have no label."""


@dataclass(frozen=True, kw_only=True)
class TripleReading(Reading):
    """Entities are short records. Whether their ids are words is noted with the corpus."""

    shard_size: ShardSize = 20_000

    def job(self, reader: RawReader, stages: Sequence[Stage]) -> Job:
        job = super().job(reader, stages)
        return replace(job, about={**job.about, WORDS: True}) if getattr(reader, "words", False) else job


@command
def triples(
    options: TripleReading,
    entities: Annotated[
        list[Location], typer.Option(help="File with labels, aliases, descriptions by entity id.")
    ] = [],  # noqa: B006
    relations: Annotated[list[Location], typer.Option(help="File with labels by relation id.")] = [],  # noqa: B006
    types: Annotated[list[Location], typer.Option(help="File with the list of types by entity id.")] = [],  # noqa: B006
    type_names: Annotated[list[Location], typer.Option(help="File with labels by type id.")] = [],  # noqa: B006
    graph: Annotated[bool, typer.Option(help="Also build the graph store OUTPUT/graph.")] = True,
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail where triples repeat or are loops, labels are ambiguous or mixed.")
    ] = False,
) -> None:
    """A knowledge graph (its source is told by its look) -> a triples corpus: one record per entity.

    With --split, held-out entities take the triples that they are the head of with them, out of the graph store too.
    Of a folder with parts (CoDEx, OpenKE) the training triples are read; others with --option part=valid.

    Examples:

      workbench prepare triples codex/codex-s --output corpora/codex-s

      workbench prepare triples wn18rr/train.txt --entities wn18rr/entities.jsonl -o corpora/wn18rr

      workbench prepare triples wikidata.nt.gz -o corpora/wikidata --split held-out=0.01
    """
    if strict and not graph:
        raise WorkbenchError("--strict looks at the graph store; leave --no-graph out")
    options.read("triples", entities=entities, relations=relations, types=types, type_names=type_names)
    if graph:
        tell(build_graph(options.output), Corpus.open(options.output), strict)


def tell(store: GraphStore, corpus: Corpus, strict: bool) -> None:
    """Print what is wrong with the graph and what it lacks, by reason.

    Raises:
        WorkbenchError: it is to be strict, and something is wrong, or rows were left out.
    """
    from kg.graph.faults import faults, lacks

    wrong, missing = faults(store), lacks(store)
    if wrong or missing:
        table = Table("has", "", title=f"The graph of {Path(corpus.place).name}")
        for told, count in (*wrong.items(), *missing.items()):
            table.add_row(told, f"{count:,}")
        console.print(table)
    wrong = {**corpus.manifest.dropped, **wrong}
    if strict and wrong:
        reasons = ", ".join(f"{told}: {count:,}" for told, count in wrong.items())
        raise WorkbenchError(
            f"{corpus.place} is complete, but --strict allows no faults: {reasons}. Mend the input and choose a new "
            "--output, or accept them without --strict"
        )


def build_graph(corpus: Path) -> GraphStore:
    """Build the graph store CORPUS/graph from the records of the corpus, unless it is there already and intact.

    Raises:
        WorkbenchError: what is there is no graph store; or another process works here.
    """
    with needs_kg():
        from kg.graph.builder import META
        from kg.graph.store import GraphStore
    folder = corpus / "graph"
    with locked(corpus):
        clear_drafts(folder)
        if folder.exists():
            try:
                store = GraphStore.open(folder)
                log.info("%s is there already: %d entities, %d triples", folder, store.num_entities, store.num_triples)
                return store
            except WorkbenchError as error:
                if not any((folder / file).exists() for file in (META, "triples.npy")):
                    raise WorkbenchError(
                        f"{folder} is no graph store; move it elsewhere, the graph goes there"
                    ) from error
                log.warning("%s; it is built again", str(error).partition("; ")[0])
                shutil.rmtree(folder)
        opened = Corpus.open(corpus)
        store = GraphStore.from_records(all_samples(opened), folder, words=opened.manifest.about.get(WORDS, False))
    log.info("%s: %d entities, %d triples", folder, store.num_entities, store.num_triples)
    return store


if __name__ == "__main__":
    run(triples)
