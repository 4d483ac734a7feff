"""`prepare triples`: a knowledge graph -> a triples corpus, and the graph store next to it."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from pipelines.commands.options import ReadingOptions, ShardSize
from pipelines.preparing.corpus_reader import open_corpus
from pipelines.preparing.progress import console
from pipelines.preparing.splits import HELD_OUT_TAIL, Splits, parse_splits
from pipelines.readers.reader import RawReader
from pipelines.readers.triples.graph import OTHER_RELATION, UNNAMED
from pipelines.readers.triples.wikidata_json import PROPERTY
from pipelines.stages import Stage
from pipelines.stages.fact_filter import EXACT, PAIR, WithoutFacts
from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import clear_drafts
from workbench.core.files.lock import locked
from workbench.core.files.stores import Store, local_copy, uploaded_folder
from workbench.core.files.urls import url_of
from workbench.core.options.bounds import Location, Place, Word
from workbench.core.packages import extra
from workbench.corpora.corpus import Corpus

if TYPE_CHECKING:
    from kg.graph.store import GraphStore

log = logging.getLogger(__name__)
NO_FAULTS = (HELD_OUT_TAIL, OTHER_RELATION, PROPERTY, UNNAMED, EXACT, PAIR)
"""Endings of the drop reasons that are no faults of the input."""
NAMESPACE = "namespace"
"""Key of `Manifest.about`: the namespace of the corpus's ids, which other graphs may share."""
WORDS = "ids_are_words"
"""Key of `Manifest.about`: whether entities without a label are named by their ids."""


@dataclass(frozen=True, kw_only=True)
class TripleReading(ReadingOptions):
    """Default number of records per shard: entities are short records."""

    shard_size: ShardSize = 20_000
    inductive: Annotated[
        bool, typer.Option("--inductive", help="With --split: held-out entities are in no triple of the corpus.")
    ] = False

    namespace: Annotated[
        Word | None,
        typer.Option(help="Namespace of the ids; graphs that share it share entities. Default: detected from the ids."),
    ] = None

    def splits(self) -> Splits:
        """
        Raises:
            WorkbenchError: an inductive split without shares of the entities.
        """
        splits = Splits.parse(self.split, self.own_split, inductive=self.inductive)
        if self.inductive and (self.own_split or not self.split):
            raise WorkbenchError(
                "--inductive holds out a share of the entities: add --split NAME=SHARE, and remove --own-split"
            )
        return splits

    def about(self, reader: RawReader) -> Mapping[str, Any]:
        noted: dict[str, Any] = {WORDS: True} if getattr(reader, "words", False) else {}
        if self.namespace is not None:
            noted[NAMESPACE] = self.namespace
        return {**super().about(reader), **noted}


def triples(
    options: TripleReading,
    entities: Annotated[
        list[Location], typer.Option(help="File with labels, aliases, descriptions by entity id.")
    ] = [],  # noqa: B006
    relations: Annotated[list[Location], typer.Option(help="File with labels by relation id.")] = [],  # noqa: B006
    types: Annotated[list[Location], typer.Option(help="File with the list of types by entity id.")] = [],  # noqa: B006
    type_names: Annotated[list[Location], typer.Option(help="File with labels by type id.")] = [],  # noqa: B006
    without: Annotated[
        list[Place],
        typer.Option(
            help="Relation extraction test set; its entity pairs are left out in both directions. Repeatable."
        ),
    ] = [],  # noqa: B006
    graph: Annotated[bool, typer.Option(help="Also build the graph store OUTPUT/graph.")] = True,
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail on faults of the triples or the texts (docs/knowledge/graph.md).")
    ] = False,
) -> None:
    """Convert a knowledge graph into a triples corpus with one record per entity. The format is detected.

    --split moves the triples of a held-out head to the split; the graph store lacks them, but keeps the entity's texts.
    --inductive also drops and counts the triples whose tail is held out, so that training has no triple of a held-out
    entity (evaluate link-prediction --unseen).
    In a folder with splits (CoDEx, OpenKE) the training triples are read; the others with --option part=valid.

    Examples:

      workbench prepare triples codex/codex-s --output corpora/codex-s

      workbench prepare triples wn18rr/train.txt --entities wn18rr/entities.jsonl -o corpora/wn18rr

      workbench prepare triples wikidata.nt.gz -o corpora/wikidata --split held-out=0.01

      workbench prepare triples codex/codex-s -o corpora/codex-unseen --split valid=0.05 --split test=0.1 --inductive

      workbench prepare triples codex/codex-m -o corpora/codex-clean --without corpora/fewrel-test
    """
    if strict and not graph:
        raise WorkbenchError("--strict checks the graph store, which --no-graph omits; remove one of them")
    stages = _without(without)
    options.read("triples", stages, entities=entities, relations=relations, types=types, type_names=type_names)
    for reason in (EXACT, PAIR) if without else ():
        dropped = Corpus.open(options.output).manifest.dropped
        count = sum(lost for found, lost in dropped.items() if found.endswith(reason))
        log.info("left out, %s: %s", reason, f"{count:,}")
    if graph:
        parts = [*parse_splits(options.split), *options.own_split]
        place = options.place_of()
        with _graph_folder(place) as folder:
            store = build_graph(place, [options.place_of(part) for part in parts], folder)
            _check_triples(store, Corpus.open(place), bool(parts))
            report_faults(store, Corpus.open(place), strict)


def _without(places: Sequence[str]) -> list[Stage]:
    """The stage that drops the facts of the test sets (`--without`)."""
    if not places:
        return []
    with extra("kg"):
        return [WithoutFacts.of(map(open_corpus, places))]


def _check_triples(store: GraphStore, corpus: Corpus, split: bool) -> None:
    """
    Raises:
        WorkbenchError: the graph has entities alone.
    """
    if store.num_triples:
        return
    lost = corpus.manifest.dropped.get(HELD_OUT_TAIL, 0)
    why = f"the others are heads of held-out splits{f', or their tail is held out ({lost:,})' if lost else ''}"
    raise WorkbenchError(
        f"{corpus.place} has {corpus.records:,} entities and no triple{f': {why}' if split else ''}. Delete it"
        + (" and its splits, and hold out smaller shares, or add triples" if split else ", and add triples")
    )


def report_faults(store: GraphStore, corpus: Corpus, strict: bool) -> None:
    """Print the faults and the gaps of the graph, by reason.

    Raises:
        WorkbenchError: `--strict` was given, and the graph has faults or dropped rows.
    """
    from kg.graph.faults import faults, lacks

    wrong, missing = faults(store), lacks(store)
    if wrong or missing:
        table = Table("has", "", title=f"The graph of {Path(corpus.place).name}")
        for reported, count in (*wrong.items(), *missing.items()):
            table.add_row(reported, f"{count:,}")
        console.print(table)
    left_out = {reason: n for reason, n in corpus.manifest.dropped.items() if not reason.endswith(NO_FAULTS)}
    wrong = {**left_out, **wrong}
    if strict and wrong:
        reasons = ", ".join(f"{reported}: {count:,}" for reported, count in wrong.items())
        raise WorkbenchError(
            f"{corpus.place} is complete, but --strict allows no faults: {reasons}. Fix the input and choose a new "
            "--output, or accept them without --strict"
        )


@contextmanager
def _graph_folder(corpus: str) -> Iterator[Path]:
    """A block in which the graph store of a corpus is a local folder. One in an object store is fetched, or else
    written there at the end."""
    with extra("kg"):
        from kg.graph.builder import META
        from kg.graph.store import IN_CORPUS
    place = f"{corpus}/{IN_CORPUS}"
    url = url_of(place)
    if url is None:
        yield Path(place)
    elif Store(url).read(META) is not None:
        yield local_copy(url)
    else:
        with uploaded_folder(url, replace=True) as folder:
            yield folder


def build_graph(corpus: str | Path, held_out: Sequence[str] = (), folder: Path | None = None) -> GraphStore:
    """Build the graph store of a corpus from its records, unless it is there already and intact.

    Args:
        held_out: corpora of triples whose entities have only their texts in it.
        folder: that of the graph; by default CORPUS/graph.

    Raises:
        WorkbenchError: the folder holds something else, or another process works in it.
    """
    with extra("kg"):
        from kg.graph.builder import META
        from kg.graph.store import IN_CORPUS, GraphStore
    folder = folder or Path(corpus) / IN_CORPUS
    with locked(folder.parent):
        clear_drafts(folder)
        if folder.exists():
            try:
                store = GraphStore.open(folder)
                log.info("%s exists already: %d entities, %d triples", folder, store.num_entities, store.num_triples)
                return store
            except WorkbenchError as error:
                if not any((folder / file).exists() for file in (META, "triples.npy")):
                    raise WorkbenchError(
                        f"{folder} is not a graph store; move it elsewhere, as the graph store is written there"
                    ) from error
                log.warning("%s; building it again", str(error).partition("; ")[0])
                shutil.rmtree(folder)
        opened = Corpus.open(corpus)
        described = ({**sample, "triples": []} for part in held_out for sample in Corpus.open(part))
        records = chain(opened, described)
        about = opened.manifest.about
        store = GraphStore.from_records(
            records, folder, words=about.get(WORDS, False), namespace=about.get(NAMESPACE, "")
        )
    log.info("%s: %d entities, %d triples", folder, store.num_entities, store.num_triples)
    return store
