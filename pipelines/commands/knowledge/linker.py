"""`prepare linker`: an entity linker built from the names in a graph."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from pipelines.preparing.linkers import LinkerOptions, make_linker
from pipelines.preparing.progress import console
from workbench.core.packages import extra
from workbench.runs.output_places import OutputFolder


def linker(
    output: Annotated[
        OutputFolder, typer.Option("--output", "-o", help="Folder or URL of the linker.", show_default=False)
    ],
    options: LinkerOptions,
    graph: Annotated[
        Path | None, typer.Argument(help="A triples corpus, or a graph store.", show_default=False)
    ] = None,
) -> None:
    """Build an entity linker from the labels and aliases in a graph, for `prepare link --linker`.

    More names come from --names, --knowledge-base and --anchors. --anchors reads texts with known links (a field
    `spans`) and counts how often each name is a link. With a graph, only names of the graph's entities are used.

    Examples:

      workbench prepare linker corpora/codex-s --output linkers/codex-s

      workbench prepare linker corpora/wikidata -o linkers/wikidata --min-length 3 --anchors corpora/wiki-linked

      workbench prepare linker -o linkers/titles --names titles.tsv
    """
    with extra("kg"):
        from kg.linking.linker import Linker
    Linker.check_new(output)
    made = make_linker(graph, options)
    made.save(output)
    cut = None if made.lexicon is None else f"texts without spaces are cut into words by {made.lexicon}"
    table = Table("has", "", title=f"The linker {output.name}", caption=cut)
    for reported, count in {"spellings": made.num_names, **made.ambiguities}.items():
        table.add_row(reported, f"{count:,}")
    console.print(table)
