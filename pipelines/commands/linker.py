"""`prepare linker`: an entity linker of the names in a graph."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import typer

from pipelines.commands.console import run
from pipelines.preparing.corpus_reader import all_samples, open_corpus
from pipelines.preparing.kg_extra import needs_kg
from pipelines.sources.entity_names import (
    EntityName,
    read_counts,
    read_knowledge_base,
    read_names,
    read_words,
    text_lines,
)
from workbench.errors import WorkbenchError
from workbench.options.bounds import Count
from workbench.options.command import command

if TYPE_CHECKING:
    from kg.linking.lexicon import Lexicon
    from kg.linking.linker import Linker

log = logging.getLogger(__name__)

Case = Annotated[Literal["ignore", "exact"], typer.Option(help="ignore or exact.")]
MinLength = Annotated[Count, typer.Option(help="Names with fewer characters are left out.")]
Skip = Annotated[Path | None, typer.Option(help="File with names to leave out, one per line.")]
Common = Annotated[bool, typer.Option(help="Also link English function words (it, us, who) that are not in capitals.")]
Words = Annotated[
    Path | None,
    typer.Option(help="Words by WORD COUNT: where a script has no spaces, no name begins or ends inside of one."),
]
Context = Annotated[bool, typer.Option(help="Compare the words around ambiguous names with the graph.")]
Names = Annotated[
    Path | None, typer.Option(help="Names by NAME<tab>ENTITY<tab>COUNT: how often a name is a link to the entity.")
]
KnowledgeBase = Annotated[
    Path | None, typer.Option(help="Aliases and their priors from a spaCy knowledge base on disk (InMemoryLookupKB).")
]
Anchors = Annotated[
    Path | None, typer.Option(help="A text corpus with right links: its link texts and their counts are learnt.")
]
Priors = Annotated[
    Path | None, typer.Option(help="Counts of entities, ENTITY<tab>COUNT; default: triples in the graph.")
]


@dataclass(frozen=True, kw_only=True)
class LinkerOptions:
    """How a linker is made, of a graph or of given names."""

    case: Case = "ignore"
    min_length: MinLength = 2
    skip: Skip = None
    common: Common = False
    names: Names = None
    knowledge_base: KnowledgeBase = None
    anchors: Anchors = None
    priors: Priors = None
    words: Words = None
    context: Context = True


@command
def linker(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the linker.", show_default=False)],
    options: LinkerOptions,
    graph: Annotated[
        Path | None, typer.Argument(help="A triples corpus, or a graph store.", show_default=False)
    ] = None,
) -> None:
    """Make an entity linker of the labels and aliases in a graph, for `prepare link --linker`.

    More names come from --names, from --knowledge-base and, with how often they are links, from --anchors: texts whose
    links are known (a field `spans`). Of these, a graph takes the names of its own entities; without a graph all count.

    Examples:

      workbench prepare linker corpora/codex-s --output linkers/codex-s

      workbench prepare linker corpora/wikidata -o linkers/wikidata --min-length 3 --anchors corpora/wiki-linked

      workbench prepare linker -o linkers/titles --names titles.tsv
    """
    made = make_linker(graph, options)
    made.save(output)
    log.info("%s: %s spellings", output, f"{made.num_names:,}")


def make_linker(graph: Path | None, options: LinkerOptions) -> Linker:
    """The linker of a triples corpus's graph or of a graph store, or without one of given names.

    Raises:
        WorkbenchError: no graph, file of names or counts, or texts with links there, or no name left.
    """
    with needs_kg():
        from kg.graph.store import GraphStore
        from kg.linking.linker import Linker
    given = list(_given(options))
    chosen: dict[str, Any] = {
        "case": options.case,
        "min_length": options.min_length,
        "skip": [] if options.skip is None else text_lines("--skip", options.skip),
        "common": options.common,
        "anchors": [] if options.anchors is None else LinkedTexts(options.anchors),
        "lexicon": _lexicon(options.words),
    }
    if graph is None:
        if not given or options.priors is not None:
            raise WorkbenchError(
                "without a graph a linker is made of --names or --knowledge-base, and has no --priors; give a graph or "
                "one of these"
            )
        return Linker.from_names((), counted=given, **chosen)
    store = GraphStore.open(graph)
    own = [name for name in given if store.ids.find(name.entity) >= 0]
    if len(own) < len(given):
        log.warning(
            "%s of %s given names are of entities that %s lacks", f"{len(given) - len(own):,}", f"{len(given):,}", graph
        )
    prior = None if options.priors is None else read_counts(options.priors)
    return Linker.from_store(store, prior=prior, context=options.context, counted=own, **chosen)


def _lexicon(path: Path | None) -> Lexicon | None:
    if path is None:
        return None
    with needs_kg():
        from kg.linking.lexicon import Lexicon
    counts = read_words(path)
    return Lexicon(list(counts), np.array(list(counts.values()), np.float64))


def _given(options: LinkerOptions) -> Iterator[EntityName]:
    if options.names is not None:
        yield from read_names(options.names)
    if options.knowledge_base is not None:
        with needs_kg():
            yield from read_knowledge_base(options.knowledge_base)


class LinkedTexts:
    """The texts of a corpus with their links, read again each time they are asked for."""

    def __init__(self, place: Path) -> None:
        self.corpus = open_corpus(str(place))
        if "spans" not in self.corpus.manifest.fields:
            raise WorkbenchError(f"--anchors {place}: the corpus has no links (no field 'spans')")

    def __iter__(self) -> Iterator[tuple[str, list[list[Any]]]]:
        return ((sample["text"], sample.get("spans", [])) for sample in all_samples(self.corpus))


if __name__ == "__main__":
    run(linker)
