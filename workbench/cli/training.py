"""The commands `workbench pretrain` and `workbench verify-resume`.

Importing torch takes seconds: inputs are checked before it is imported.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from annotated_types import Ge, Le

from workbench.api import checked_recipe
from workbench.core.options.bounds import Assignment, LocalPlace, OutputPlace
from workbench.core.options.command import Trust
from workbench.core.options.path_options import LocalPath
from workbench.core.processes.launch import check_launch, is_first
from workbench.core.terminal import Terminal
from workbench.pretraining.task_corpora import places_named

if TYPE_CHECKING:
    from workbench.training.verify_resume import ResumeVerdict

RecipeName = Annotated[
    LocalPlace,
    typer.Argument(help="A recipe's name (see `workbench recipes`), a YAML file, or a Hugging Face folder."),
]
Overrides = Annotated[
    list[Assignment] | None, typer.Argument(help="Changes to the recipe, as key=value.", metavar="KEY=VALUE")
]

Steps = Annotated[int, Ge(2), Le(10**9)]


def pretrain(
    recipe: RecipeName,
    overrides: Overrides = None,
    run: Annotated[
        OutputPlace | None,
        typer.Option(
            "--output", "--run", "-o", help="The run folder, or a URL of a store; by default runs/<recipe's name>."
        ),
    ] = None,
    accept_changes: Annotated[
        bool,
        typer.Option(
            "--accept-changes",
            help="Resume although data, code or frozen weights changed; the run records the changes.",
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything and show the plan of the run; write nothing.")
    ] = False,
    trust: Trust = False,
) -> None:
    """Pretrain a recipe. Resumes from the last checkpoint of the run folder; Ctrl-C and SIGTERM save a checkpoint
    first.

    Examples:

      workbench pretrain tiny-text tasks.text.corpora=[corpora/notes] train.max_steps=1000 --output runs/notes

      workbench pretrain hf/bert vars.corpus=corpora/notes train.max_steps=1000

      torchrun --nproc-per-node 8 -m workbench pretrain bert tasks.text.corpora=[corpora/notes] --output runs/notes
    """
    check_launch(os.environ)
    loaded, folder = checked_recipe(recipe, overrides or (), run, trust=trust)
    from workbench.training import pretrain as runs

    with places_named(loaded):
        if not dry_run:
            runs.pretrain(loaded, folder, accept_changes=accept_changes)
            return
        step = runs.dry_run(loaded, folder, accept_changes=accept_changes).resume.step
    if is_first(os.environ):
        starts = f"resume from step {step:,}" if step else "start"
        Terminal().print(f"{folder} can {starts}; this was a dry run, and nothing was written")


def verify_resume(
    recipe: RecipeName,
    overrides: Overrides = None,
    run: Annotated[
        LocalPath | None,
        typer.Option(
            "--output",
            "--run",
            "-o",
            help="The folder of the two runs that are compared; the runs of an earlier comparison are replaced.",
        ),
    ] = None,
    steps: Annotated[
        Steps | None,
        typer.Option(
            help="Steps to train; the interruption is in the middle. Default: 6, or fewer if the recipe has fewer."
        ),
    ] = None,
    trust: Trust = False,
) -> None:
    """Train twice, once with a stop and a restart in the middle, and compare every loss.

    The losses must be equal bit for bit on a CPU, and on a GPU with train.deterministic=true. Otherwise they must be
    equal within a tolerance, which is printed.

    Example:

      workbench verify-resume bert tasks.text.corpora=[corpora/notes] --steps 20
    """
    check_launch(os.environ)
    loaded, place = checked_recipe(recipe, overrides or (), run, trust=trust)
    from workbench.training import verify_resume as verify

    folder = run or Path(place).with_name(f"{loaded.name}-verify-resume")
    with places_named(loaded):
        verdict = verify.verify_resume(loaded, folder, steps)
    if not is_first(os.environ):
        return  # with 0: torchrun ends the other ranks when one fails, and the first has the verdict to print
    _print_verdict(verdict)
    if not verdict.equal:
        raise typer.Exit(1)


def _print_verdict(verdict: ResumeVerdict) -> None:
    console = Terminal()
    if verdict.equal:
        how = f" within {verdict.tolerance:g}" if verdict.close or verdict.close_weights else ""
        console.print(
            f"equal{how}: {verdict.compared} values of {verdict.steps} steps and all weights, interrupted after step "
            f"{verdict.interrupted_at}"
        )
    for step, name, one, other in verdict.different[:10]:
        console.print(f"step {step} {name}: uninterrupted {one!r}, resumed {other!r}")
    if verdict.tolerance:
        same = verdict.compared - verdict.close - len(verdict.different)
        console.print(
            f"bit for bit: {same} values; within {verdict.tolerance:g}: {verdict.close} more, and "
            f"{verdict.close_weights} weight tensors that differ. Without train.deterministic=true a GPU's kernels "
            "add in any order, so no closer agreement can be expected"
        )
    if not verdict.equal:
        console.print(
            f"[bold red]different[/]: {len(verdict.different)} of {verdict.compared} values, "
            f"{len(verdict.weights)} weight tensors"
        )
