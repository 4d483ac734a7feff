"""Builds an entity linker from the names in a graph, or from given names (`prepare linker`, `prepare link --graph`)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import typer

from pipelines.preparing.corpus_reader import open_corpus
from pipelines.sources.entity_names import (
    EntityName,
    read_counts,
    read_knowledge_base,
    read_names,
    read_words,
    text_lines,
)
from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Count, Location
from workbench.core.packages import extra
from workbench.corpora.stored_corpus import CorpusFolder

if TYPE_CHECKING:
    from kg.graph.store import GraphStore
    from kg.linking.linker import Linker
    from kg.linking.word_ends import WordEnds

log = logging.getLogger(__name__)
NO_WORDS = "none"

Case = Annotated[Literal["ignore", "exact"], typer.Option(help="ignore or exact.")]
MinLength = Annotated[Count, typer.Option(help="Names with fewer characters are left out.")]
Skip = Annotated[Path | None, typer.Option(help="File with names to leave out, one per line.")]
Common = Annotated[bool, typer.Option(help="Also link English function words (it, us, who) that are not in capitals.")]
Words = Annotated[
    Location,
    typer.Option(
        help="Word segmentation of Chinese, Japanese, ...; names match whole words: auto (by the names' "
        "language), jieba, sudachi, a file of WORD COUNT, or none."
    ),
]
Context = Annotated[bool, typer.Option(help="Compare the words around ambiguous names with the graph.")]
Names = Annotated[
    Path | None, typer.Option(help="Names, NAME<tab>ENTITY<tab>COUNT: the number of links from a name to the entity.")
]
KnowledgeBase = Annotated[
    Path | None, typer.Option(help="Aliases and their priors from a spaCy knowledge base on disk (InMemoryLookupKB).")
]
Anchors = Annotated[
    CorpusFolder | None,
    typer.Option(help="A text corpus with correct links: its link texts and their counts are used."),
]
Priors = Annotated[
    Path | None, typer.Option(help="Counts of entities, ENTITY<tab>COUNT; default: triples in the graph.")
]


@dataclass(frozen=True, kw_only=True)
class LinkerOptions:
    """How a linker is built, from a graph or from given names."""

    case: Case = "ignore"
    min_length: MinLength = 2
    skip: Skip = None
    common: Common = False
    names: Names = None
    knowledge_base: KnowledgeBase = None
    anchors: Anchors = None
    priors: Priors = None
    words: Words = "auto"
    context: Context = True


def make_linker(graph: Path | None, options: LinkerOptions) -> Linker:
    """The linker of a triples corpus's graph or of a graph store; without a graph, one of given names.

    Raises:
        WorkbenchError: the graph, a file of names or counts, or texts with links are missing, or no name is left.
    """
    with extra("kg"):
        from kg.graph.store import GraphStore
        from kg.linking.linker import Linker
    given = {option: list(names) for option, names in _given(options)}
    for option, found in given.items():
        if not found:
            raise WorkbenchError(f"{option}: the file has no name; add names, or remove the option")
    anchors = None if options.anchors is None else LinkedTexts(options.anchors)
    chosen: dict[str, Any] = {
        "case": options.case,
        "min_length": options.min_length,
        "skip": [] if options.skip is None else text_lines("--skip", options.skip),
        "common": options.common,
        "anchors": anchors or [],
        "lexicon": _word_ends(options.words),
    }
    if graph is None:
        if not any(given.values()) or options.priors is not None:
            raise WorkbenchError(
                "without a graph a linker is built from --names or --knowledge-base, and has no --priors; give a "
                "graph or one of these"
            )
        return _seen(Linker.from_names((), counted=chain(*given.values()), **chosen), anchors)
    store = GraphStore.open(graph)
    for option, names in given.items():
        given[option] = [name for name in names if store.ids.find(name.entity) >= 0]
        _check_known(option, [name.entity for name in names], len(given[option]), store)
    prior = None if options.priors is None else read_counts(options.priors)
    if prior is not None:
        _check_known(f"--priors {options.priors}", list(prior), sum(store.ids.find(e) >= 0 for e in prior), store)
    made = Linker.from_store(store, prior=prior, context=options.context, counted=chain(*given.values()), **chosen)
    return _seen(made, anchors)


def _seen(made: Linker, anchors: LinkedTexts | None) -> Linker:
    """The linker, with a note of the texts that it was trained on."""
    made.learned_from = [] if anchors is None else [anchors.corpus.identity]
    return made


def _check_known(option: str, entities: Sequence[str], known: int, store: GraphStore) -> None:
    """Log how many rows of a file are of entities that the graph lacks.

    Raises:
        WorkbenchError: all are.
    """
    if entities and not known:
        raise WorkbenchError(
            f"{option}: none of its {len(entities):,} rows has an entity of the graph {store.path}; its ids are like "
            f"{entities[0]!r}, the graph's like {store.ids[0]!r}. Give a file with the graph's ids"
        )
    if known < len(entities):
        lacking = len(entities) - known
        log.warning(
            "%s: %s of %s rows are of entities that the graph lacks", option, f"{lacking:,}", f"{len(entities):,}"
        )


def _word_ends(words: str) -> WordEnds | Literal["auto"] | None:
    """The word segmentation that the option names."""
    with extra("kg"):
        from kg.linking.lexicon import Lexicon
        from kg.linking.segmenters import AUTO, LinkingSegmenter
        from workbench.text.segmenters import SEGMENTERS
    if words == AUTO:
        return "auto"
    if words == NO_WORDS:
        return None
    if words in SEGMENTERS:
        return LinkingSegmenter(words)
    if not Path(words).is_file():
        named = ", ".join((AUTO, *SEGMENTERS, NO_WORDS))
        raise WorkbenchError(f"--words {words}: there is no such file; allowed: a file of words, or one of {named}")
    counts = read_words(Path(words))
    return Lexicon(list(counts), np.array(list(counts.values()), np.float64))


def _given(options: LinkerOptions) -> Iterator[tuple[str, Iterator[EntityName]]]:
    """The options that give names, each with its names."""
    if options.names is not None:
        yield f"--names {options.names}", read_names(options.names)
    if options.knowledge_base is not None:
        with extra("kg"):
            yield f"--knowledge-base {options.knowledge_base}", read_knowledge_base(options.knowledge_base)


class LinkedTexts:
    """The texts of a corpus with their correct links; iterates as often as needed.

    Raises:
        WorkbenchError: the corpus has no links, or candidates none of which is marked as correct.
    """

    def __init__(self, place: Path) -> None:
        self.place, self.corpus = place, open_corpus(str(place))
        if "spans" not in self.corpus.manifest.fields:
            raise WorkbenchError(f"--anchors {place}: the corpus has no links (no field 'spans')")

    def __iter__(self) -> Iterator[tuple[str, list[Sequence[Any]]]]:
        from kg.sequences.linked_mentions import right_links

        links = right = 0
        for sample in self.corpus:
            spans = right_links(sample)
            links, right = links + len(sample.get("spans", ())), right + len(spans)
            yield sample["text"], spans
        if links and not right:
            raise WorkbenchError(
                f"--anchors {self.place}: its {links:,} links are candidates of a linker, and none is marked as "
                "correct; "
                "give the corpus with the correct links that they were found in, or mark the correct "
                "candidates: `workbench prepare link CORPUS --candidates N --supervise`"
            )
