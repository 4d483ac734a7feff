"""`prepare linker`: an entity linker of the names in a graph."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pipelines.commands.console import run
from pipelines.preparing.corpus_reader import all_samples, open_corpus
from pipelines.preparing.kg_extra import needs_kg
from pipelines.sources.files import decode, lines
from workbench.errors import WorkbenchError
from workbench.options.bounds import Count
from workbench.options.command import command

if TYPE_CHECKING:
    from kg.linking.linker import Linker

log = logging.getLogger(__name__)

Case = Annotated[Literal["ignore", "exact"], typer.Option(help="ignore or exact.")]
MinLength = Annotated[Count, typer.Option(help="Names with fewer characters are left out.")]
Skip = Annotated[Path | None, typer.Option(help="File with names to leave out, one per line.")]
Common = Annotated[bool, typer.Option(help="Also link English function words (it, us, who) that are not in capitals.")]
Context = Annotated[bool, typer.Option(help="Compare the words around ambiguous names with the graph.")]
Anchors = Annotated[
    Path | None, typer.Option(help="A text corpus with right links: its link texts and their counts are learnt.")
]
Priors = Annotated[
    Path | None, typer.Option(help="Counts of entities, ENTITY<tab>COUNT; default: triples in the graph.")
]


@dataclass(frozen=True, kw_only=True)
class LinkerOptions:
    """How a linker is made of a graph."""

    case: Case = "ignore"
    min_length: MinLength = 2
    skip: Skip = None
    common: Common = False
    anchors: Anchors = None
    priors: Priors = None
    context: Context = True


@command
def linker(
    graph: Annotated[Path, typer.Argument(help="A triples corpus, or a graph store.", show_default=False)],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the linker.", show_default=False)],
    options: LinkerOptions,
) -> None:
    """Make an entity linker of the labels and aliases in a graph, for `prepare link --linker`.

    With --anchors, texts whose links are known (a field `spans`) teach it which words are links, how often, to what.

    Examples:

      workbench prepare linker corpora/codex-s --output linkers/codex-s

      workbench prepare linker corpora/wikidata -o linkers/wikidata --min-length 3 --anchors corpora/wiki-linked
    """
    made = make_linker(graph, options)
    made.save(output)
    log.info("%s: %s spellings", output, f"{made.num_names:,}")


def make_linker(graph: Path, options: LinkerOptions) -> Linker:
    """The linker of a triples corpus's graph or of a graph store.

    Raises:
        WorkbenchError: no graph, file of names or counts, or texts with links there, or no name left.
    """
    with needs_kg():
        from kg.graph.store import GraphStore
        from kg.linking.linker import Linker
    store = GraphStore.open(graph)
    return Linker.from_store(
        store,
        prior=None if options.priors is None else read_counts(options.priors),
        case=options.case,
        min_length=options.min_length,
        skip=[] if options.skip is None else _lines("--skip", options.skip),
        common=options.common,
        anchors=[] if options.anchors is None else LinkedTexts(options.anchors),
        context=options.context,
    )


class LinkedTexts:
    """The texts of a corpus with their links, read again each time they are asked for."""

    def __init__(self, place: Path) -> None:
        self.corpus = open_corpus(str(place))
        if "spans" not in self.corpus.manifest.fields:
            raise WorkbenchError(f"--anchors {place}: the corpus has no links (no field 'spans')")

    def __iter__(self) -> Iterator[tuple[str, list[list[Any]]]]:
        return ((sample["text"], sample.get("spans", [])) for sample in all_samples(self.corpus))


def read_counts(path: Path) -> dict[str, float]:
    """Counts by entity id, from lines `entity<tab>count`.

    Raises:
        WorkbenchError: no such file, or a line that is none of these; says which.
    """
    counts = {}
    for number, line in enumerate(_lines("--priors", path), start=1):
        entity, _, count = line.rpartition("\t")
        try:
            value = float(count)
        except ValueError:
            value = -1.0
        if not entity or not 0 <= value < math.inf:
            raise WorkbenchError(f"{path}, line {number}: {line[:80]!r} is not ENTITY<tab>COUNT with a count from 0 on")
        counts[entity] = value
    return counts


def _lines(option: str, path: Path) -> list[str]:
    if not path.is_file():
        raise WorkbenchError(f"{option} {path}: there is no such file")
    return [decode(line, f"{path}:{number}") for number, line in lines(path)]


if __name__ == "__main__":
    run(linker)
