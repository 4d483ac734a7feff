"""`prepare linker`: an entity linker of the names in a graph."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from pipelines.commands.console import run
from pipelines.preparing.kg_extra import needs_kg
from pipelines.sources.files import read_text
from workbench.errors import WorkbenchError
from workbench.options.bounds import Count

if TYPE_CHECKING:
    from kg.linking.linker import Linker

log = logging.getLogger(__name__)

Case = Annotated[Literal["ignore", "exact"], typer.Option(help="ignore or exact.")]
MinLength = Annotated[Count, typer.Option(help="Names with fewer characters are left out.")]
Skip = Annotated[Path | None, typer.Option(help="File with names to leave out, one per line (common words).")]
Context = Annotated[bool, typer.Option(help="Compare the words around ambiguous names with the graph.")]


def linker(
    graph: Annotated[Path, typer.Argument(help="A triples corpus, or a graph store.", show_default=False)],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the linker.", show_default=False)],
    case: Case = "ignore",
    min_length: MinLength = 2,
    skip: Skip = None,
    context: Context = True,
) -> None:
    """Make an entity linker of the labels and aliases in a graph, for `prepare link --linker`.

    Examples:

      workbench prepare linker corpora/codex-s --output linkers/codex-s

      workbench prepare linker corpora/wikidata -o linkers/wikidata --min-length 3 --skip common-words.txt
    """
    made = make_linker(graph, case=case, min_length=min_length, skip=skip, context=context)
    made.save(output)
    log.info("%s: %s spellings", output, f"{made.num_names:,}")


def make_linker(
    graph: Path, *, case: Literal["ignore", "exact"], min_length: int, skip: Path | None, context: bool
) -> Linker:
    """The linker of a triples corpus's graph or of a graph store.

    Raises:
        WorkbenchError: no graph or no file of names there, or no name left.
    """
    with needs_kg():
        from kg.graph.store import GraphStore
        from kg.linking.linker import Linker
    store = GraphStore.open(graph)
    if skip is not None and not skip.is_file():
        raise WorkbenchError(f"--skip {skip}: there is no such file")
    unwanted = read_text(skip).splitlines() if skip is not None else []
    return Linker.from_store(store, case=case, min_length=min_length, skip=unwanted, context=context)


if __name__ == "__main__":
    run(linker)
