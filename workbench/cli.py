"""The command line. Commands are found by their import path when they are called, so that starting is fast and the
core imports neither kg nor vision nor pipelines."""

from __future__ import annotations

import importlib
import logging
import os
import sys
from dataclasses import dataclass
from typing import Any

import click
import typer
from rich.console import Console
from rich.markup import escape

from workbench.errors import WorkbenchError, nearest


@dataclass(frozen=True)
class Entry:
    """A command: where it is (a function or a typer app) and the line that `workbench --help` shows."""

    path: str
    help: str


COMMANDS = {
    "prepare": Entry("pipelines.commands:app", "Turn raw text, image-text or triples into a corpus."),
    "index": Entry("workbench.corpora.commands:index", "Index a foreign WebDataset, without rewriting it."),
    "verify": Entry("workbench.corpora.commands:verify", "Check a corpus: checksums, images, spans, boxes."),
    "show": Entry("workbench.show:show", "Preview a corpus, or the first micro-batch of a recipe (--batch)."),
    "recipes": Entry("workbench.show:recipes", "List the recipes: paper, kind, one line each."),
    "pretrain": Entry("workbench.training.commands:pretrain", "Pretrain a recipe; goes on where a run stopped."),
    "verify-resume": Entry(
        "workbench.training.commands:verify_resume", "Prove that a resumed run equals an uninterrupted one."
    ),
    "finetune": Entry("workbench.evaluation.commands:finetune", "Fine-tune a run: vqa, retrieval, entity-typing."),
    "evaluate": Entry("workbench.evaluation.commands:evaluate", "Evaluate: vqa, retrieval, entity-typing, facts."),
    "report": Entry("workbench.report.commands:report", "Write one self-contained HTML page about runs."),
    "encode": Entry("workbench.evaluation.encoding:encode", "Vectors of texts or images from a trained model."),
    "export": Entry("workbench.interop.commands:export", "Write a run's network as a Hugging Face folder."),
}


def load_command(name: str, entry: Entry) -> click.Command:
    """The click command behind an entry.

    Raises:
        WorkbenchError: a package that this command needs is not installed.
    """
    module, _, attribute = entry.path.partition(":")
    try:
        target = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise WorkbenchError(
            f"'workbench {name}' needs the package {error.name!r}: pip install 'pretraining-workbench[vision,kg]'"
        ) from error
    if isinstance(target, click.Command):
        target.name = name
        return target
    if not isinstance(target, typer.Typer):
        app = typer.Typer(add_completion=False, rich_markup_mode="rich")
        app.command(name=name, help=target.__doc__)(target)
        target = app
    command: click.Command = typer.main.get_command(target)  # type: ignore[assignment]
    command.name = name
    return command


class Commands(click.Group):
    """A group of commands, each of which is imported when it is asked for."""

    def __init__(self, entries: dict[str, Entry], **options: Any) -> None:
        super().__init__(**options)
        self.entries = entries

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self.entries.get(cmd_name)
        return None if entry is None else load_command(cmd_name, entry)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.entries:
            close = nearest(args[0], self.entries)
            guess = f" Did you mean {' or '.join(close)}?" if close else ""
            raise WorkbenchError(f"there is no command {args[0]!r}.{guess} Commands: {', '.join(self.entries)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in self.entries.items()])


EXAMPLES = """
\b
Examples:
  workbench prepare text notes.txt --output corpora/notes
  workbench pretrain bert tasks.text.corpora=[corpora/notes] train.max_steps=1000
  workbench report runs/bert
"""
app = Commands(
    COMMANDS, name="workbench", help="Pretrain knowledge-enhanced and vision-language Transformers.\n" + EXAMPLES
)


def main() -> None:
    """Run a command. Exit code 0: done; 2: a wrong input; 130 and 143: stopped by Ctrl-C or SIGTERM."""
    logging.basicConfig(level=os.environ.get("WORKBENCH_LOG", "WARNING"), format="%(message)s")
    try:
        sys.exit(app(standalone_mode=False) or 0)
    except WorkbenchError as error:
        _say(str(error))
        sys.exit(2)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        _say("stopped")
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _say(message: str) -> None:
    Console(stderr=True, soft_wrap=True).print(f"[bold red]error:[/] {escape(message)}", highlight=False)
