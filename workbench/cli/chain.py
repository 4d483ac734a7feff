"""The command `workbench chain`."""

from __future__ import annotations

from typing import Annotated

import typer

from workbench.core.errors import MachineError, WorkbenchError
from workbench.core.options.bounds import Assignment, Place
from workbench.core.terminal import Terminal


def chain(
    file: Annotated[
        Place,
        typer.Argument(
            help="The chain: a YAML file with `stages`, and what is measured after each; or the name of one that "
            "ships: dapt-tapt, intermediate-task, ulmfit."
        ),
    ],
    overrides: Annotated[
        list[Assignment] | None, typer.Argument(help="Changes to the chain, as key=value.", metavar="KEY=VALUE")
    ] = None,
) -> None:
    """Run commands one after the other, each once, and measure the same tasks after each.

    The same command continues where a chain was stopped: finished stages are skipped, and the one that was running
    resumes. FILE.chain.json, next to FILE, records what was finished, with its results. The record of a shipped chain
    is in the current folder.

    Example (chain.yaml):

      stages:
        domain: pretrain tiny-text tasks.text.corpora=[corpora/speeches] --output runs/domain
        task: finetune classify runs/domain corpora/labelled --output runs/task
      after_each:
        - {task: pseudo-perplexity, corpus: corpora/speeches-held-out, until: domain}

      workbench chain chain.yaml

      workbench chain dapt-tapt vars.model=hf/bert vars.domain=corpora/news vars.task=corpora/reviews
    """
    from workbench.evaluation.chain import Chain

    table = Chain(file, overrides or ()).run(_run)
    if table is not None:
        Terminal().print(table)


def _run(words: list[str]) -> None:
    """Run a command of these words.

    Raises:
        WorkbenchError: it has failed, and has said why.
    """
    from workbench.cli.app import app

    try:
        app.run(list(words), "workbench")
    except SystemExit as ended:
        if ended.code == 1:
            raise MachineError(f"`workbench {words[0]}` has failed; the same chain continues from here") from ended
        if ended.code not in (0, None):
            raise WorkbenchError(
                f"`workbench {words[0]}` was refused; fix the stage, and run the chain again"
            ) from ended
