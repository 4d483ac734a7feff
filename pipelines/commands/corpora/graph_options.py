"""The graph store of a triples corpus: built from its records by `prepare triples`, `prepare join` and `prepare graph
--build`."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from pipelines.preparing.parts import PART, stated_options
from pipelines.preparing.progress import console
from pipelines.preparing.splits import HELD_OUT_TAIL, split_names
from pipelines.readers.triples.graph import OTHER_RELATION, UNNAMED
from pipelines.readers.triples.wikidata_json import PROPERTY
from pipelines.stages.fact_filter import EXACT, PAIR
from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import clear_drafts
from workbench.core.files.lock import locked
from workbench.core.files.stores import Store, local_copy, uploaded_folder
from workbench.core.files.urls import url_of
from workbench.core.packages import extra
from workbench.corpora.corpus import Corpus
from workbench.corpora.manifest import FILE_NAME

if TYPE_CHECKING:
    from kg.graph.store import GraphStore

log = logging.getLogger(__name__)
TRIPLES = "triples"
"""The kind of corpora that have a graph."""
NO_FAULTS = (HELD_OUT_TAIL, OTHER_RELATION, PROPERTY, UNNAMED, EXACT, PAIR)
"""Endings of the drop reasons that are no faults of the input."""
NAMESPACE = "namespace"
"""Key of `Manifest.about`: the namespace of the corpus's ids, which other graphs may share."""
WORDS = "ids_are_words"
"""Key of `Manifest.about`: whether entities without a label are named by their ids."""


@dataclass(frozen=True, kw_only=True)
class GraphOptions:
    """Whether the graph of a new triples corpus is built, and what of it fails."""

    graph: Annotated[bool, typer.Option(help="Build the graph store OUTPUT/graph of triples.")] = True
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail on faults of the triples or the texts (docs/knowledge/graph.md).")
    ] = False

    def __post_init__(self) -> None:
        if self.strict and not self.graph:
            raise WorkbenchError("--strict checks the graph store, which --no-graph omits; remove one of them")

    def build(self, place: str) -> None:
        """Build the graph of a new corpus at a path or URL, unless `--no-graph` was given, and print its faults.

        Raises:
            WorkbenchError: the corpus has no triple, or `--strict` was given and the graph has faults.
        """
        if self.graph:
            with corpus_graph(place) as store:
                report_faults(store, Corpus.open(place), self.strict)


@contextmanager
def corpus_graph(place: str) -> Iterator[GraphStore]:
    """A block with the graph store of a triples corpus at a path or URL, which is built unless it is there.

    That of an object store is written there when the block ends without an error.

    Raises:
        WorkbenchError: the corpus has no triples, or is a part of a preparation; as `build_graph`.
    """
    corpus = Corpus.open(place)
    part = stated_options(corpus.manifest).get(PART)
    if corpus.kind != TRIPLES:
        raise WorkbenchError(f"{place} is a corpus of kind {corpus.kind}; allowed: a corpus of kind {TRIPLES}")
    if part is not None:
        raise WorkbenchError(f"{place} is part {part} of a corpus; `workbench prepare join` joins all, with a graph")
    with _graph_folder(place) as folder:
        store = build_graph(place, folder)
        _check_triples(store, corpus)
        yield store


def _check_triples(store: GraphStore, corpus: Corpus) -> None:
    """
    Raises:
        WorkbenchError: the graph has entities alone.
    """
    if store.num_triples:
        return
    split, lost = split_names(corpus.manifest), corpus.manifest.dropped.get(HELD_OUT_TAIL, 0)
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


def build_graph(corpus: str | Path, folder: Path | None = None) -> GraphStore:
    """Build the graph store of a corpus from its records, unless it is there already and intact.

    Of the entities of its held-out splits it has only the texts.

    Args:
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
                log.info(
                    "%s exists already: %d entities, %d triples; delete it to build it again",
                    *(folder, store.num_entities, store.num_triples),
                )
                return store
            except WorkbenchError as error:
                if not any((folder / file).exists() for file in (META, "triples.npy")):
                    raise WorkbenchError(
                        f"{folder} is not a graph store; move it elsewhere, as the graph store is written there"
                    ) from error
                log.warning("%s; building it again", str(error).partition("; ")[0])
                shutil.rmtree(folder)
        opened = Corpus.open(corpus)
        described = ({**sample, "triples": []} for split in _held_out(opened) for sample in split)
        records = chain(opened, described)
        about = opened.manifest.about
        store = GraphStore.from_records(
            records, folder, words=about.get(WORDS, False), namespace=about.get(NAMESPACE, "")
        )
    log.info("%s: %d entities, %d triples", folder, store.num_entities, store.num_triples)
    return store


def _held_out(corpus: Corpus) -> Sequence[Corpus]:
    """The held-out splits next to a corpus; those without a record have no corpus."""
    places = [f"{corpus.place.rstrip('/')}-{name}" for name in split_names(corpus.manifest)]
    found = [place for place in places if _has_corpus(place)]
    for place in places:
        if place not in found:
            log.warning("there is no corpus at %s; if the split has records, the graph lacks their texts", place)
    return [Corpus.open(place) for place in found]


def _has_corpus(place: str) -> bool:
    url = url_of(place)
    return Path(place, FILE_NAME).is_file() if url is None else Store(url).read(FILE_NAME) is not None
