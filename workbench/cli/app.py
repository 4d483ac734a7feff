"""The command line. A command is imported when it is called. So the start is fast, and the core imports neither kg nor
vision nor pipelines."""

from __future__ import annotations

import faulthandler
import importlib
import logging
import os
import select
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import typer
from rich.markup import escape
from rich.table import Table

from workbench.cli.keyed_command import KeyedCommand
from workbench.core.errors import BUG, WorkbenchError, memory_error, message, system_error, unknown
from workbench.core.local_copies import with_urls
from workbench.core.options.command import command
from workbench.core.processes.launch import is_first, started
from workbench.core.processes.rank_messages import say_once
from workbench.core.processes.signals import Ended, ending
from workbench.core.shipped import version
from workbench.core.terminal import PlainFormatter, Terminal, visible


@dataclass(frozen=True)
class Entry:
    """A command: its import path (a function or a typer app) and its line in `workbench --help`."""

    path: str
    help: str


COMMANDS = {
    "prepare": Entry("pipelines.commands.app:app", "Turn raw text, image-text or triples into a corpus."),
    "formats": Entry(
        "pipelines.commands.list_formats:list_formats", "List the raw formats that prepare reads, and their options."
    ),
    "index": Entry("workbench.cli.corpora:index", "Index an existing WebDataset without rewriting it."),
    "verify": Entry("workbench.cli.corpora:verify", "Check a corpus: checksums, images, spans, boxes."),
    "show": Entry(
        "workbench.cli.figures:command",
        "Show a corpus, a run, a recipe, its first micro-batch (--batch) or a figure of a run.",
    ),
    "recipes": Entry(
        "workbench.cli.recipes:list_recipes",
        "List the recipes, show one, or write the recipe of a Hugging Face folder (--from).",
    ),
    "components": Entry(
        "workbench.cli.components:list_components", "List the components that recipes name, and their options."
    ),
    "pretrain": Entry("workbench.cli.training:pretrain", "Pretrain a recipe, or resume its run."),
    "verify-resume": Entry(
        "workbench.cli.training:verify_resume", "Check that a resumed run equals an uninterrupted one."
    ),
    "sweep": Entry("workbench.cli.sweep:sweep", "Train a recipe with other values of some keys, and rank the trials."),
    "finetune": Entry("workbench.cli.evaluation:finetune", "Fine-tune a run on a downstream task."),
    "evaluate": Entry(
        "workbench.cli.evaluation:evaluate",
        "Evaluate a run on a downstream task; the results go into evaluations/ as JSON.",
    ),
    "predict": Entry(
        "workbench.cli.evaluation:predict", "Say what a fine-tuned run predicts of texts, images or corpora."
    ),
    "compare": Entry("workbench.cli.comparison:compare_sides", "Test whether runs differ on the same items."),
    "chain": Entry("workbench.cli.chain:chain", "Run commands one after the other, and measure tasks after each."),
    "cost": Entry(
        "workbench.cli.cost:cost", "Measure what networks cost: parameters, bytes, operations, latency, throughput."
    ),
    "check": Entry("pipelines.commands.check:check", "Check a GPU: is it correct, fast and fed by the loader?"),
    "report": Entry("workbench.cli.report:report", "Write one self-contained HTML page about runs."),
    "downstream": Entry(
        "workbench.cli.downstream:list_tasks", "List the downstream tasks of finetune and evaluate, and their options."
    ),
    "encode": Entry("workbench.cli.encoding:encode", "Compute vectors of texts or images with a trained model."),
    "generate": Entry("workbench.cli.generation:generate", "Generate texts with a trained model."),
    "serve": Entry("workbench.cli.serve:serve", "Serve a page on this machine that asks runs, several side by side."),
    "prune": Entry("workbench.cli.prune:prune", "Remove heads and rows that matter least: a smaller run."),
    "export": Entry(
        "workbench.cli.export:export", "Write a run's network as a checkpoint of Hugging Face or an original code base."
    ),
    "push": Entry("workbench.cli.push:push", "Upload an exported folder to the Hugging Face hub, with its card."),
}
ON_RANKS: dict[str, str | None] = {
    "pretrain": None,
    "verify-resume": None,
    "finetune": None,
    "evaluate": None,
    "prepare": "--part",
}
"""The commands that may run on several ranks of a launcher, with the option that they need for it. The others would do
the same work once per rank, and write it to the same place."""
ELSEWHERE = {
    "convert": "'workbench export RUN --as FAMILY --output FOLDER' writes a run as a checkpoint of another library",
    "embed": "'workbench encode RUN INPUT --output FILE' writes vectors",
    "eval": "'workbench evaluate TASK RUN CORPUS' measures a run",
    "info": "'workbench show RUN' shows the progress and results of a run; it shows corpora and recipes too",
    "list": "'workbench recipes' lists models, 'workbench downstream' lists tasks, 'workbench components' components",
    "models": "'workbench recipes' lists the models",
    "infer": "'workbench predict TASK RUN INPUT' predicts with a fine-tuned run",
    "resume": "run the same 'workbench pretrain' (or finetune) command again: it resumes from the last checkpoint",
    "status": "'workbench show RUN' shows the progress and results of a run",
    "test": "'workbench evaluate TASK RUN CORPUS' measures a run",
    "train": "'workbench pretrain RECIPE' pretrains a recipe, 'workbench finetune TASK RUN CORPUS' fine-tunes a run",
    "version": "'workbench --version' prints the version",
}
"""Commands of other tools, and the workbench command that does the same."""


class LazyCommand:
    """A meta path finder that finds nothing. It prints once that torch is being loaded, since that takes seconds."""

    def __init__(self, arguments: list[str]) -> None:
        self.silent = "--help" in arguments or not is_first(os.environ)

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "torch" and not self.silent:
            self.silent = True
            Terminal(stderr=True).print("loading ...", highlight=False)


class Commands:
    """A group of commands. Each is imported when it is called."""

    def __init__(self, entries: dict[str, Entry], help: str) -> None:
        self.entries = entries
        self.help = help

    def run(self, arguments: list[str], called: str) -> None:
        """Run the command that the first argument names; without one, or with --help, print the list of commands.

        Raises:
            WorkbenchError: there is no such command, or a package that it needs is not installed.
            SystemExit: the command ended with an exit code.
        """
        if not arguments or arguments[0] in ("--help", "-h"):
            self._explain(called)
            sys.exit(0 if arguments else 2)
        if arguments[0] == "--version" and self.entries is COMMANDS:
            Terminal().print(f"workbench {version()}", highlight=False)
            return
        name, rest = arguments[0], arguments[1:]
        if self.entries is COMMANDS and name in COMMANDS:
            check_ranks(name, rest, os.environ)
        target = self._load(called, name, rest)
        if isinstance(target, Commands):
            target.run(rest, f"{called} {name}")
        else:
            call(target, rest, f"{called} {name}")

    def target(self, called: str, name: str) -> Any:
        """The command of this name: a function, a typer app or a group of commands.

        Raises:
            WorkbenchError: there is no such command, or a package that it needs is not installed.
        """
        self._check(called, name)
        module, _, attribute = self.entries[name].path.partition(":")
        with needed_packages(f"{called} {name}"):
            return getattr(importlib.import_module(module), attribute)

    def _load(self, called: str, name: str, rest: list[str]) -> Commands | typer.Typer:
        """The command of this name; `rest` are the arguments that it will get."""
        target = self.target(called, name)
        return target if isinstance(target, Commands | typer.Typer) else typer_app(target)

    def _check(self, called: str, name: str) -> None:
        if name in self.entries:
            return
        if self.entries is COMMANDS and name in ELSEWHERE:
            raise WorkbenchError(f"there is no command '{called} {name}': {ELSEWHERE[name]}")
        raise unknown("command", f"{called} {name}", [f"{called} {entry}" for entry in self.entries])

    def _explain(self, called: str) -> None:
        console = Terminal()
        console.print(f"Usage: [bold]{escape(called)}[/] COMMAND ...\n\n{escape(self.help)}\n")
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 2))
        for name, entry in self.entries.items():
            table.add_row(f"[bold]{escape(name)}[/]", escape(entry.help))
        console.print(table)
        console.print(f"\n'{escape(called)} COMMAND --help' shows its arguments and options.")


def check_ranks(name: str, arguments: list[str], environment: Mapping[str, str]) -> None:
    """
    Raises:
        WorkbenchError: a launcher has started several ranks, and the command runs in one process.
    """
    given, option = {word.partition("=")[0] for word in arguments}, ON_RANKS.get(name)
    if "--help" in given or option in given or (name in ON_RANKS and option is None):
        return
    if (count := started(environment)) > 1:
        one = "" if option is None else f", or give each process its own {option}"
        raise WorkbenchError(
            f"'workbench {name}' runs in one process, and a launcher has started {count} of it (RANK, SLURM_PROCID or "
            f"OMPI_COMM_WORLD_RANK is set): each would do all work. Start it without torchrun, srun and mpirun{one}"
        )


def call(target: typer.Typer, arguments: list[str], called: str) -> None:
    """Run a command. Ctrl-C raises KeyboardInterrupt, which typer would turn into a silent exit."""
    try:
        typer.main.get_command(target)(args=arguments, prog_name=called)
    except SystemExit as ended:
        interrupt = getattr(ended.__context__, "__cause__", None)
        if isinstance(interrupt, KeyboardInterrupt):
            raise interrupt from None
        raise


@contextmanager
def needed_packages(called: str) -> Iterator[None]:
    """A block in which an error names the missing package and the command that needs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise WorkbenchError(
            f"'{called}' needs the package {error.name!r}: pip install 'pretraining-workbench[vision,kg]'"
        ) from error


def typer_app(function: Callable[..., Any]) -> typer.Typer:
    """A typer app with this function as its only command."""
    app = typer.Typer(add_completion=False, rich_markup_mode="rich")
    app.command(cls=KeyedCommand)(command(function))
    return app


HELP = """Pretrain knowledge-enhanced and vision-language Transformers.

Examples:
  workbench prepare text notes.txt --output corpora/notes
  workbench pretrain bert tasks.text.corpora=[corpora/notes] train.max_steps=1000 train.lr_schedule.warmup_steps=100
  workbench report runs/bert"""
app = Commands(COMMANDS, HELP)


def main() -> None:
    """Run a command.

    Exit codes: 0: success. 1: checked data is wrong, or the machine failed (a full disk, no memory, a lost process). 2:
    a wrong input, also a file or folder that may not be read or written. 70: a bug, with a traceback. 128 + n: stopped
    by signal n (130 for Ctrl-C, 143 for SIGTERM).
    """
    # torch's OpenMP reads this when it is loaded: threads that wait by spinning made a step 20 times slower next to
    # other processes
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # likewise before the import: every rank would print the warnings of torch's C++
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    if sys.stderr is not None and not faulthandler.is_enabled():
        faulthandler.enable()  # a truncated mapped file kills the process: print at least the stack
    lines = logging.StreamHandler()
    lines.setFormatter(PlainFormatter("%(message)s"))
    logging.basicConfig(level=os.environ.get("WORKBENCH_LOG", "WARNING"), handlers=[lines])
    sys.meta_path.insert(0, announced := LazyCommand(sys.argv[1:]))
    try:
        with reported():
            app.run(sys.argv[1:], "workbench")
    except Exception as error:
        lines.stream.write(visible(with_urls("".join(traceback.format_exception(error)))))
        sys.exit(BUG)
    finally:
        sys.meta_path.remove(announced)


@contextmanager
def reported() -> Iterator[None]:
    """A block in which an expected error is printed as one message and ends the process with the exit code of `main`.
    Bugs pass."""
    try:
        with ending():
            yield
    except Ended as ended:
        _say(f"stopped by {ended.signal.name}")
        raise
    except WorkbenchError as error:
        say_once(message(error), _say)
        sys.exit(error.exit_code)
    except KeyboardInterrupt as error:  # a component may have raised it: its note names the place
        _say("\n".join(["stopped", *getattr(error, "__notes__", ())]))
        sys.exit(130)
    except (OSError, MemoryError, ImportError) as error:
        if isinstance(error, BrokenPipeError) and _nobody_reads():
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)
        refusal = system_error(error) if isinstance(error, OSError) else memory_error(error)
        if refusal is None:
            raise
        logging.getLogger(__name__).debug("", exc_info=True)  # WORKBENCH_LOG=DEBUG prints the traceback
        say_once(message(refusal), _say)
        sys.exit(refusal.exit_code)


def _nobody_reads() -> bool:
    """Whether the reader of this process's output has closed it, as after `workbench ... | head`."""
    streams = select.poll()
    for number in (1, 2):
        streams.register(number, 0)  # a poll reports errors without being asked
    return any(state & (select.POLLERR | select.POLLHUP) for _, state in streams.poll(0))


def _say(message: str) -> None:
    console = Terminal(stderr=True, soft_wrap=True)  # "notes.txt:100: ..." is no emoji
    console.print(f"[bold red]error:[/] {escape(message)}", highlight=False)
