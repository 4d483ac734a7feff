"""The downstream tasks that come with the workbench, in words: for `workbench tasks` and docs/tasks.md."""

from __future__ import annotations

import importlib
import inspect
import typing
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, dataclass, fields
from typing import Any, NamedTuple

from workbench.errors import unknown
from workbench.evaluation.finding import find_task
from workbench.evaluation.folders import task_folders
from workbench.evaluation.options import Scoring, Tuning
from workbench.options.command import spelling, typer_info
from workbench.options.values import described, without_null

COMPARING = """\
## Items, intervals, and whether two runs differ

An evaluation keeps what it made of each item in a file beside its result, and in a second one with `--predictions
FILE`: a line of JSON for each text, question, query, mention, triple or document.

- `key` is the record's; several items may be of one.
- `gold` and `prediction` are what is right, and what the run says.
- `scores`, `score`, `rank`, `head_rank`, `tail_rank` and `first` stand there as the task has them: of all classes, of
  the prediction, the rank of what is right, the first candidates with their scores.
- `adds` has by number what the item adds to it: of a `share` whether it is right, and its weight, of a `mean` a value
  and its weight, of an `f1` how many are right, found and gold ([all kinds](../workbench/metrics/tallies.py)).

The table that `evaluate` prints has a 95 % interval beside each number that its items add up to, and the result has
them too (`intervals`, with `items` and `seed`). A share of independent items has Wilson's interval. Every other
number has that of a bootstrap: 1,000 times, as many records are drawn as there are, and the number is computed of
these. Items of one record (the questions on one image) are drawn together. An interval says nothing of other seeds of
training.

A run that was trained on the corpus that it is evaluated on, or that was started from one that was, is warned of. Its
result and the report say so too. The same holds of a corpus that was prepared from the same files with another
`--split`.

`workbench compare` tells whether two runs differ, where both were evaluated on the same items. Here one reads whole
texts, the other eight tokens of each:

```bash
workbench prepare text labelled.jsonl --output corpora/hours --split test=0.4
workbench prepare tokenizer corpora/hours --output corpora/tokenizer.json --vocab-size 300
workbench pretrain tiny-text tasks.text.corpora=[corpora/hours] train.max_steps=10
workbench finetune classify runs/tiny-text corpora/hours --epochs 2 --output runs/whole
workbench finetune classify runs/tiny-text corpora/hours --epochs 2 --max-length 8 --output runs/eight
workbench evaluate classify runs/whole corpora/hours-test --predictions whole.jsonl
workbench evaluate classify runs/eight corpora/hours-test
workbench compare runs/eight runs/whole --output difference.json
```

It prints a table with each number of both, their difference with its 95 % interval, and p. Both sides get the same
draws of records, 10,000 of them (`--samples`), so that what is hard for both does not count as a difference. p is how
often a draw's difference lies as far from the one observed as that lies from 0; runs that say the same have p = 1. It
is no probability that they are equal, and of many comparisons some have a small p by chance.

A side is a run, one of its results, a file of `--predictions`, the table that `finetune --seeds` writes, or several
of these joined by commas: seeds. Of several seeds the means are compared, and each draw takes seeds anew as well:
pairs of them, in their order, where both sides have as many. Other corpora, items, right answers or variants of a
metric are refused, by name.
"""


class Option(NamedTuple):
    """An option of a command as it is typed, what it may be, its default ("" where it must be given), and its help."""

    name: str
    allowed: str
    default: str
    help: str


class Command(NamedTuple):
    """`finetune` or `evaluate` of a task: what its help says, and the options that it has beside every task's."""

    verb: str
    text: str
    options: list[Option]


@dataclass(frozen=True)
class Listed:
    """A task: its name, the line of its folder, its commands."""

    name: str
    line: str
    commands: list[Command]


def tasks(names: Iterable[str] | None = None) -> list[Listed]:
    """The tasks that come with the workbench, or those of these names.

    Raises:
        WorkbenchError: there is no such task.
    """
    folders = task_folders()
    for name in names or ():
        if name not in folders:
            raise unknown("task", name, folders)
    return [_listed(name, folders[name]) for name in names or folders]


def _listed(name: str, folder: str) -> Listed:
    task = find_task(name)
    kinds = (("finetune", task.tuning, Tuning), ("evaluate", task.scoring, Scoring))
    commands = [
        Command(verb, inspect.getdoc(kind) or "", list(_options(kind, base))) for verb, kind, base in kinds if kind
    ]
    return Listed(name, (importlib.import_module(folder).__doc__ or "").strip(), commands)


def _options(kind: Any, base: Any = None) -> Iterator[Option]:
    """The options of a command, those that differ from the base's alone."""
    same = set(_options(base)) if base else set()
    hints = typing.get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        hint = hints[field.name]
        default = "" if field.default is MISSING or field.default is None else str(field.default)
        allowed = described(without_null(hint))  # null stands for an option that is not given
        info = typer_info(hint)
        option = Option(spelling(field.name, hint), allowed, default, str(info.help) if info else "")
        if option not in same:
            yield option


def markdown() -> Iterator[str]:
    """The lines of docs/tasks.md."""
    yield from (
        "# Tasks",
        "",
        "What a pretrained run is fine-tuned for and measured by, as `workbench tasks --markdown` writes it from the",
        "tasks themselves; how to add one is told in [architecture.md](architecture.md#downstream-tasks).",
        "",
        "| task | |",
        "|---|---|",
    )
    listed = tasks()
    yield from (f"| [`{task.name}`](#{task.name}) | {_cell(task.line)} |" for task in listed)
    for verb, kind in (("finetune", Tuning), ("evaluate", Scoring)):
        yield from ("", f"## {verb}", "", f"What `workbench {verb} TASK` is told whatever the task:")
        yield from _table(_options(kind))
    yield from ("", *COMPARING.splitlines())
    for task in listed:
        yield from ("", f"## {task.name}", "", task.line)
        for command in task.commands:
            yield from ("", f"### workbench {command.verb} {task.name}", "", *_text(command.text))
            yield from _table(command.options)


def _text(text: str) -> Iterator[str]:
    """A command's help as Markdown: its examples as code."""
    for line in text.splitlines():
        yield f"    {line.strip()}" if line.startswith("  ") else line


def _table(options: Iterable[Option]) -> Iterator[str]:
    rows = [f"| `{o.name}` | {_cell(o.allowed)} | {_cell(o.default)} | {_cell(o.help)} |" for o in options]
    yield from ("", "| option | allowed | default | |", "|---|---|---|---|", *rows) if rows else ()


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
