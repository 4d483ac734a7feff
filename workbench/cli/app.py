"""The command line. Commands are found by their import path when they are called, so that starting is fast and the
core imports neither kg nor vision nor pipelines."""

from __future__ import annotations

import faulthandler
import importlib
import logging
import os
import select
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import typer
from rich.markup import escape
from rich.table import Table

from workbench.core.errors import WorkbenchError, memory_error, message, system_error, unknown
from workbench.core.options.command import command
from workbench.core.processes.rank_messages import say_once
from workbench.core.processes.signals import Ended, ending
from workbench.core.shipped import version
from workbench.core.terminal import PlainFormatter, Terminal


@dataclass(frozen=True)
class Entry:
    """A command: where it is (a function or a typer app) and the line that `workbench --help` shows."""

    path: str
    help: str


COMMANDS = {
    "prepare": Entry("pipelines.commands.app:app", "Turn raw text, image-text or triples into a corpus."),
    "formats": Entry(
        "pipelines.commands.list_formats:list_formats", "List the raw formats that prepare reads, and their options."
    ),
    "index": Entry("workbench.cli.corpora:index", "Index a foreign WebDataset, without rewriting it."),
    "verify": Entry("workbench.cli.corpora:verify", "Check a corpus: checksums, images, spans, boxes."),
    "show": Entry(
        "workbench.cli.figures:command",
        "Show a corpus, a run, a recipe or its first micro-batch (--batch); figures of runs.",
    ),
    "recipes": Entry(
        "workbench.cli.recipes:list_recipes",
        "List the recipes, or say all of one; --from writes that of a Hugging Face folder.",
    ),
    "components": Entry(
        "workbench.cli.components:list_components", "List the components that recipes name, and their options."
    ),
    "pretrain": Entry("workbench.cli.training:pretrain", "Pretrain a recipe; continues where a run stopped."),
    "verify-resume": Entry(
        "workbench.cli.training:verify_resume", "Prove that a resumed run equals an uninterrupted one."
    ),
    "finetune": Entry("workbench.cli.evaluation:finetune", "Fine-tune a run on a task."),
    "evaluate": Entry(
        "workbench.cli.evaluation:evaluate", "Evaluate a run on a task; its JSON goes into evaluations/."
    ),
    "compare": Entry("workbench.cli.comparison:compare_sides", "Whether runs differ on the same items: a paired test."),
    "report": Entry("workbench.cli.report:report", "Write one self-contained HTML page about runs."),
    "downstream": Entry(
        "workbench.cli.downstream:list_tasks", "List the tasks of finetune and evaluate, and their options."
    ),
    "encode": Entry("workbench.cli.encoding:encode", "Vectors of texts or images from a trained model."),
    "generate": Entry("workbench.cli.generation:generate", "Texts that a trained model continues with."),
    "export": Entry("workbench.cli.export:export", "Write a run's network as other people's code reads it."),
}
ELSEWHERE = {
    "convert": "'workbench export RUN --as FAMILY --output FOLDER' writes a run as other code reads it",
    "embed": "'workbench encode RUN INPUT --output FILE' writes vectors",
    "eval": "'workbench evaluate TASK RUN CORPUS' measures a run",
    "info": "'workbench show RUN' says how far a run is and what was measured; it shows corpora and recipes too",
    "list": "'workbench recipes' lists models, 'workbench downstream' tasks, 'workbench components' the rest",
    "models": "'workbench recipes' lists the models",
    "predict": "'workbench generate RUN INPUT' writes texts, 'workbench encode RUN INPUT' vectors",
    "resume": "run the same 'workbench pretrain' (or finetune) command again: it continues where the run stopped",
    "status": "'workbench show RUN' says how far a run is and what was measured",
    "test": "'workbench evaluate TASK RUN CORPUS' measures a run",
    "train": "'workbench pretrain RECIPE' trains from a recipe, 'workbench finetune TASK RUN CORPUS' trains on a task",
    "version": "'workbench --version' says it",
}
"""Words for commands that people know from elsewhere, and what they are here."""


class LazyCommand:
    """An importer that finds nothing, and says once that torch is being loaded, which takes seconds."""

    def __init__(self, arguments: list[str]) -> None:
        self.silent = "--help" in arguments or os.environ.get("RANK", "0") != "0"

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "torch" and not self.silent:
            self.silent = True
            Terminal(stderr=True).print("loading ...", highlight=False)


class Commands:
    """A group of commands, each of which is imported when it is called."""

    def __init__(self, entries: dict[str, Entry], help: str) -> None:
        self.entries = entries
        self.help = help

    def run(self, arguments: list[str], called: str) -> None:
        """Run the command that the first argument names; without one, or with --help, say which there are.

        Raises:
            WorkbenchError: there is no such command, or a package it needs is not installed.
            SystemExit: the command ended with an exit code.
        """
        if not arguments or arguments[0] in ("--help", "-h"):
            self._explain(called)
            sys.exit(0 if arguments else 2)
        if arguments[0] == "--version" and self.entries is COMMANDS:
            Terminal().print(f"workbench {version()}", highlight=False)
            return
        name, rest = arguments[0], arguments[1:]
        target = self._load(called, name, rest)
        if isinstance(target, Commands):
            target.run(rest, f"{called} {name}")
        else:
            call(target, rest, f"{called} {name}")

    def target(self, called: str, name: str) -> Any:
        """The command of this name, as it is written: a function, or a group of commands.

        Raises:
            WorkbenchError: there is none, or a package that it needs is not installed.
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
        console.print(f"\n'{escape(called)} COMMAND --help' tells more.")


def call(target: typer.Typer, arguments: list[str], called: str) -> None:
    """Run a command; Ctrl-C, of which typer makes a silent exit, is Ctrl-C again."""
    try:
        typer.main.get_command(target)(args=arguments, prog_name=called)
    except SystemExit as ended:
        interrupt = getattr(ended.__context__, "__cause__", None)
        if isinstance(interrupt, KeyboardInterrupt):
            raise interrupt from None
        raise


@contextmanager
def needed_packages(called: str) -> Iterator[None]:
    """Within, a package that is not installed is told with what needs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise WorkbenchError(
            f"'{called}' needs the package {error.name!r}: pip install 'pretraining-workbench[vision,kg]'"
        ) from error


def typer_app(function: Callable[..., Any]) -> typer.Typer:
    """A function as a command line of its own."""
    app = typer.Typer(add_completion=False, rich_markup_mode="rich")
    app.command()(command(function))
    return app


HELP = """Pretrain knowledge-enhanced and vision-language Transformers.

Examples:
  workbench prepare text notes.txt --output corpora/notes
  workbench pretrain bert tasks.text.corpora=[corpora/notes] train.max_steps=1000 train.lr_schedule.warmup_steps=100
  workbench report runs/bert"""
app = Commands(COMMANDS, HELP)


def main() -> None:
    """Run a command.

    Exit code 0: done; 1: checked data is wrong, the machine failed (a full disk, no memory, a lost process) or, with a
    traceback, a bug; 2: a wrong input, also a file or
    folder that may not be read or written; 128 + n: stopped by signal n (130 for Ctrl-C, 143 for SIGTERM).
    """
    # read when torch's OpenMP is loaded: threads that wait by spinning made a step 20 times slower next to other work
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # as early: warnings of torch's C++, which every rank would say
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    if sys.stderr is not None and not faulthandler.is_enabled():
        faulthandler.enable()  # a mapped file that is cut off kills the process; say at least where it was read
    lines = logging.StreamHandler()
    lines.setFormatter(PlainFormatter("%(message)s"))
    logging.basicConfig(level=os.environ.get("WORKBENCH_LOG", "WARNING"), handlers=[lines])
    sys.meta_path.insert(0, announced := LazyCommand(sys.argv[1:]))
    try:
        with reported():
            app.run(sys.argv[1:], "workbench")
    finally:
        sys.meta_path.remove(announced)


@contextmanager
def reported() -> Iterator[None]:
    """Within, errors for people are told in one message, and the process exits as `main` says; bugs go through."""
    try:
        with ending():
            yield
    except Ended as ended:
        _say(f"stopped by {ended.signal.name}")
        raise
    except WorkbenchError as error:
        say_once(message(error), _say)
        sys.exit(error.exit_code)
    except KeyboardInterrupt as error:  # a part may have raised it: the note says where it was met
        _say("\n".join(["stopped", *getattr(error, "__notes__", ())]))
        sys.exit(130)
    except (OSError, MemoryError, ImportError) as error:
        if isinstance(error, BrokenPipeError) and _nobody_reads():
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)
        refusal = system_error(error) if isinstance(error, OSError) else memory_error(error)
        if refusal is None:
            raise
        logging.getLogger(__name__).debug("", exc_info=True)  # WORKBENCH_LOG=DEBUG tells where it came from
        say_once(message(refusal), _say)
        sys.exit(refusal.exit_code)


def _nobody_reads() -> bool:
    """Whether the reader of this process's output has gone, as after `workbench ... | head`."""
    streams = select.poll()
    for number in (1, 2):
        streams.register(number, 0)  # of an error one is always told
    return any(state & (select.POLLERR | select.POLLHUP) for _, state in streams.poll(0))


def _say(message: str) -> None:
    console = Terminal(stderr=True, soft_wrap=True)  # "notes.txt:100: ..." is no emoji
    console.print(f"[bold red]error:[/] {escape(message)}", highlight=False)
