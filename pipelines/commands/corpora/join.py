"""`prepare join`: the parts of a corpus, prepared on several machines -> the corpus."""

from __future__ import annotations

import logging
from typing import Annotated

import typer

from pipelines.commands.options import command_line
from pipelines.preparing import joining
from workbench.core.options.path_options import LocalPath

log = logging.getLogger(__name__)


def join(
    parts: Annotated[
        list[LocalPath], typer.Argument(help="All folders that were prepared with --part.", show_default=False)
    ],
    output: Annotated[LocalPath, typer.Option("--output", "-o", help="Folder of the new corpus.", show_default=False)],
) -> None:
    """Join the parts of a corpus that were prepared with --part, on one machine or several.

    The result equals the corpus of a single run without --part. On the same disk shards are hard-linked, not copied.

    Examples:

      workbench prepare regions corpora/coco --backbone resnet50 --part 1/2 --output corpora/grid-1

      workbench prepare regions corpora/coco --backbone resnet50 --part 2/2 --output corpora/grid-2

      workbench prepare join corpora/grid-1 corpora/grid-2 --output corpora/grid
    """
    manifest = joining.join(parts, output, command_line())
    log.info("%s: %d records in %d shards, of %d parts", output, manifest.records, len(manifest.shards), len(parts))
