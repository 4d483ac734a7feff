"""The command `workbench prune`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from workbench.core.errors import WorkbenchError
from workbench.core.options.bounds import Count, Dropout, Place, Word
from workbench.core.options.command import Trust, WhichNetwork
from workbench.core.terminal import Terminal
from workbench.runs.names import is_run
from workbench.runs.output_places import OutputFolder
from workbench.runs.stored_run import StoredFolder


def prune(
    run: Annotated[StoredFolder, typer.Argument(help="The run.")],
    corpus: Annotated[Place, typer.Argument(help="Texts with labels of its task, which rank heads and rows.")],
    output: Annotated[OutputFolder, typer.Option("--output", "-o", help="The new, smaller run.")],
    heads: Annotated[Dropout, typer.Option(help="Share of the attention heads to remove.")] = 0.0,
    rows: Annotated[Dropout, typer.Option(help="Share of each feed-forward network's rows to remove.")] = 0.0,
    network: WhichNetwork = None,
    task: Annotated[Word | None, typer.Option(help="The run's task whose losses count, if it has several.")] = None,
    limit: Annotated[Count | None, typer.Option(help="Rank by the first N records.")] = None,
    trust: Trust = False,
) -> None:
    """Remove the attention heads and feed-forward rows that matter least: a run with smaller tensors.

    Their importance is read from the gradients of the task's losses on the corpus. It should be another corpus than the
    one for testing. `finetune` trains the smaller run further.

    Examples:

      workbench prune runs/reviews corpora/reviews --heads 0.5 --rows 0.3 --output runs/smaller
    """
    if not is_run(run):
        raise WorkbenchError(f"{run} is no run; its tasks say what matters: fine-tune it first (workbench finetune)")
    if not heads and not rows:
        raise WorkbenchError("nothing is to be removed; state a share: --heads 0.5, --rows 0.3")
    from workbench.corpora.corpus import Corpus
    from workbench.evaluation.analysis.removal import removed
    from workbench.runs.loaded_run import load

    loaded = load(run, trust=trust)
    where = {"network": network, "task": task, "limit": limit}
    before, after = removed(loaded, run, output, Corpus.open(corpus), heads, rows, **where)
    left = f"{after:,} of {before:,} parameters ({after / before:.0%})"
    Terminal().print(f"{escape(str(output))}: {left}", highlight=False)
