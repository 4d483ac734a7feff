"""`prepare join`: the parts of a corpus, prepared on several machines -> the corpus."""

from __future__ import annotations

import logging
from typing import Annotated

import typer

from pipelines.commands.corpora.graph_options import TRIPLES, GraphOptions
from pipelines.commands.options import command_line
from pipelines.preparing import joining
from pipelines.preparing.splits import MAIN, part_folder
from workbench.core.errors import WorkbenchError
from workbench.core.options.path_options import LocalPath
from workbench.corpora.corpus import Corpus

log = logging.getLogger(__name__)


def join(
    parts: Annotated[
        list[LocalPath], typer.Argument(help="All folders that were prepared with --part.", show_default=False)
    ],
    output: Annotated[LocalPath, typer.Option("--output", "-o", help="Folder of the new corpus.", show_default=False)],
    graph_options: GraphOptions,
) -> None:
    """Join the parts of a corpus that were prepared with --part, on one machine or several.

    The result equals that of a single run without --part. Held-out splits are joined as OUTPUT-NAME. They are found
    next to the folders that are named, or may be named too. Triples get their graph, OUTPUT/graph. On the same disk
    shards are hard-linked, not copied.

    Examples:

      workbench prepare regions corpora/coco --backbone resnet50 --part 1/2 --output corpora/grid-1

      workbench prepare regions corpora/coco --backbone resnet50 --part 2/2 --output corpora/grid-2

      workbench prepare join corpora/grid-1 corpora/grid-2 --output corpora/grid
    """
    if graph_options.strict and (kind := Corpus.open(parts[0]).kind) != TRIPLES:
        raise WorkbenchError(f"--strict checks graphs, and {parts[0]} is of kind {kind}; remove it")
    joined = joining.join(parts, output, command_line())
    for split, manifest in joined.items():
        place, count = part_folder(output, split), len(manifest.provenance["commands"])
        log.info("%s: %d records in %d shards, of %d parts", place, manifest.records, len(manifest.shards), count)
    if joined[MAIN].kind == TRIPLES:
        graph_options.build(str(output))
