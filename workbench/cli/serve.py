"""The command `workbench serve`."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Port
from workbench.core.options.command import Trust
from workbench.core.packages import library
from workbench.core.terminal import Terminal
from workbench.interop.checkpoint_files import check_place
from workbench.runs.stored_run import StoredFolder


def serve(
    runs: Annotated[
        list[StoredFolder], typer.Argument(metavar="RUN...", help="Runs, or checkpoints: folders, URLs, package:NAME.")
    ],
    port: Annotated[Port, typer.Option(help="The port on this machine.")] = 7860,
    trust: Trust = False,
) -> None:
    """Serve a page on this machine that asks runs, several side by side.

    It has a tab for each thing that they can do: words for a mask with the entities that were linked and the facts that
    were brought in, predictions of fine-tuned heads, continuations, attention, questions about an image, search. Each
    tab asks with everything, or under a control. Nothing leaves the machine.

    Examples:

      workbench serve runs/k-bert runs/bert

      workbench serve runs/uniter-vqa --port 8000
    """
    for place in runs:
        check_place(place)
    os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
    library("gradio", "serve", "the page")
    from workbench.serving.gradio_page import build_page, serve_page
    from workbench.serving.tab import Served

    if len({str(place) for place in runs}) < len(runs):
        raise WorkbenchError("a run is named twice; name each once")
    page = build_page([Served(place, trust) for place in runs])
    Terminal().print(f"http://127.0.0.1:{port}  (Ctrl-C ends it)", highlight=False)
    serve_page(page, port)
