"""The command `workbench formats`: the raw data that `prepare` reads."""

from __future__ import annotations

from typing import Annotated

import typer

from pipelines.readers.catalogue import table
from workbench.core.options.bounds import Word
from workbench.core.terminal import Terminal


def list_formats(
    kind: Annotated[
        Word | None,
        typer.Argument(help="The kind of corpus (text, image-text, ...) whose formats are listed, with their options."),
    ] = None,
) -> None:
    """List the raw formats that `prepare` reads, one per line. With a kind of corpus, their options are listed too.

    Examples:

      workbench formats

      workbench formats image-text
    """
    Terminal().print(table(kind, options=kind is not None))
