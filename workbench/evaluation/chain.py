"""Chains of commands: each is run once, and after each the same tasks are measured. `workbench chain`.

What was finished is recorded next to the chain's file (for a shipped chain in the current folder), so a chain that was
killed continues where it was. The stage that was running resumes as its own command does. The results after each stage,
as a table, show what a stage has taught and what it has made the model forget (McCloskey and Cohen, 1989).
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

from annotated_types import MinLen
from rich.table import Table

from workbench.components.error_context import ErrorContext
from workbench.core.errors import WorkbenchError, unknown
from workbench.core.files.drafts import write_text
from workbench.core.files.text_files import parse_json
from workbench.core.files.urls import is_url
from workbench.core.files.yaml_values import read_yaml
from workbench.core.options.bounds import Name, Place, Word
from workbench.core.options.command import options_from_python
from workbench.core.options.values import check
from workbench.core.terminal import Terminal
from workbench.recipe.reading import check_variables
from workbench.runs.data_record import run_id
from workbench.runs.names import is_run

RECORD = ".chain.json"
"""What the name of a chain's record ends with."""
STAGES = ("prepare", "pretrain", "finetune", "prune", "export", "encode", "evaluate", "report")
"""The commands that a stage may be."""
RUNS = ("pretrain", "finetune", "prune")
"""Those that write a run, which tasks measure."""
OUTPUT = ("--output", "-o")


@dataclass(frozen=True)
class StageTask:
    """A task that is measured after each stage with a run.

    Attributes:
        task, corpus: as of `workbench evaluate`.
        number: the name of the number; by default the first one.
        since, until: the first and the last stage after which it is measured; by default all with a run.
        stages: the stages after which it is measured, in place of the two.
        options: further options of the evaluation.
    """

    task: Name
    corpus: Place
    number: Name | None = None
    since: Word | None = None
    until: Word | None = None
    stages: list[Word] | None = None
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What is measured, in words: a record with another one is no result of it."""
        options = [f"{name}={value}" for name, value in self.options.items()]
        return " ".join([self.task, str(self.corpus), *([self.number] if self.number else []), *options])


@dataclass(frozen=True)
class ChainSpec:
    """A chain as its file states it: commands by name, without the word `workbench`."""

    stages: Annotated[dict[Word, Name], MinLen(1)]
    after_each: list[StageTask] = field(default_factory=list)
    vars: dict[str, Any] = field(default_factory=dict)


def _words(text: str, where: str) -> list[str]:
    """The words of a command.

    Raises:
        WorkbenchError: it has none, or a quotation that does not end.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise WorkbenchError(
            f"{where} cannot be split into words ({error}): {text!r}; quote values with spaces or quotes as in a shell"
        ) from error
    if not words:
        raise WorkbenchError(f"{where} has no command; allowed: one of {', '.join(STAGES)} with its arguments")
    return words


def say(line: str) -> None:
    """A line about the progress."""
    Terminal(stderr=True).print(line, markup=False, highlight=False)


Run = Callable[[list[str]], None]
"""Runs a command of these words; an error is raised."""


def shipped_chains() -> dict[str, Path]:
    """The files of the chains that the workbench ships, by name."""
    folder = Path(str(resources.files("workbench.chains")))
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def find_chain(name: str | Path) -> tuple[Path, Path]:
    """The file of a chain, and that of its record: next to a file of one's own, else in the current folder.

    Raises:
        WorkbenchError: neither a file nor a shipped chain.
    """
    file, known = Path(name), shipped_chains()
    if not file.is_file() and str(name) in known:
        return known[str(name)], Path(f"{name}{RECORD}")
    if not file.is_file():
        raise unknown("chain", str(name), known, advice="A file of your own ends in .yaml.")
    return file, file.with_name(f"{file.stem}{RECORD}")


def _spec(file: Path, overrides: Sequence[str]) -> ChainSpec:
    """
    Raises:
        WorkbenchError: a variable that is null, or as `Chain`.
    """

    def made(plain: Any) -> ChainSpec:
        stated = plain.get("vars") if isinstance(plain, dict) else None
        open_ones = [name for name, value in stated.items() if value is None] if isinstance(stated, dict) else []
        if open_ones:
            raise WorkbenchError(f"vars.{open_ones[0]} is null; set it: vars.{open_ones[0]}=VALUE")
        return check(ChainSpec, plain, str(file))

    def prepared(tree: Any) -> Any:
        check_variables(tree, overrides)
        return tree

    return read_yaml(file, overrides, made, prepared)


class Chain:
    """A chain, and what was finished of it.

    Args:
        name: a YAML file with a `ChainSpec`, or the name of a shipped chain.
        overrides: changes to it, as `vars.key=value`.

    Raises:
        WorkbenchError: no such chain, another content, an unknown stage or command, or a record of other commands.
    """

    def __init__(self, name: str | Path, overrides: Sequence[str] = ()) -> None:
        file, self.record = find_chain(name)
        self.spec = _spec(file, overrides)
        self.words = {name: _words(text, f"{file}: the stage {name!r}") for name, text in self.spec.stages.items()}
        for name, words in self.words.items():
            if words[0] not in STAGES:
                raise unknown("command", words[0], STAGES, f"{file}: the stage {name!r}")
        for each in self.spec.after_each:
            for stage in (each.since, each.until, *(each.stages or ())):
                if stage is not None and stage not in self.words:
                    raise unknown("stage", stage, self.words, f"{file}: after_each: {each.name}")
        for name, words in self.words.items():
            if words[0] in RUNS and self.output(name) is None and any(self._due(name)):
                raise WorkbenchError(
                    f"{file}: the stage {name!r} is measured, so it needs a place: add --output FOLDER"
                )
        self.finished: dict[str, dict[str, Any]] = self._read() if self.record.is_file() else {}
        self._check()

    def _read(self) -> dict[str, dict[str, Any]]:
        try:
            found = parse_json(self.record.read_text(encoding="utf-8"))["stages"]
            if all({"command", "results"} <= stage.keys() for stage in found.values()):
                return dict(found)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            pass
        raise WorkbenchError(f"{self.record} is no record of a chain; put it back, or remove it to begin anew")

    def _check(self) -> None:
        """
        Raises:
            WorkbenchError: what was finished is not what the chain says, or is not there any more.
        """
        for name, stage in self.finished.items():
            if self.spec.stages.get(name) != stage["command"]:
                raise WorkbenchError(
                    f"the stage {name!r} was finished as `{stage['command']}`, and the chain says "
                    f"`{self.spec.stages.get(name, 'nothing')}`; put it back, or give the chain's file another name"
                )
            output = self.output(name)
            if output is not None and not output.exists():
                raise WorkbenchError(
                    f"the stage {name!r} was finished, and its {output} is not there any more; put it back, or remove "
                    f"{self.record} and what the later stages wrote"
                )
            if output is not None and stage.get("run") not in (None, run_id(output)):
                raise WorkbenchError(
                    f"the stage {name!r} was finished, and {output} is another run now; put the old one back, or "
                    f"remove {self.record} and what the later stages wrote"
                )

    def output(self, stage: str) -> Path | None:
        """What the command of a stage writes, where it says so."""
        words = self.words[stage]
        places = [words[i + 1] for i, word in enumerate(words[:-1]) if word in OUTPUT]
        places += [word.partition("=")[2] for word in words if word.startswith(f"{OUTPUT[0]}=")]
        return Path(places[-1]) if places else None

    def run(self, run: Run) -> Table | None:
        """Run what is not finished; returns the table of results, where any is measured. What is measured is looked up
        before the first stage runs.

        Raises:
            WorkbenchError: as a command or an evaluation raises it, with the name of the stage.
        """
        self._check_measured()
        for name, words in self.words.items():
            if name in self.finished:
                say(f"stage {name}: finished")
            else:
                say(f"stage {name}: workbench {shlex.join(words)}")
                with ErrorContext(f"stage {name}"):
                    run(words)
                output = self.output(name)
                identity = run_id(output) if output is not None else None
                known = {"run": identity} if identity is not None else {}
                self._keep(name, {"command": self.spec.stages[name], **known, "results": {}})
            self._measure(name)
        return self.table() if any(stage["results"] for stage in self.finished.values()) else None

    def _keep(self, name: str, stage: dict[str, Any]) -> None:
        self.finished[name] = stage
        write_text(self.record, json.dumps({"stages": self.finished}, indent=1, ensure_ascii=False) + "\n")

    def _check_measured(self) -> None:
        """
        Raises:
            WorkbenchError: a task or an option does not exist, or a corpus that no stage writes is not there.
        """
        from workbench.evaluation.scoring.task_finder import find_task

        written = [str(place) for name in self.words if (place := self.output(name)) is not None]
        for each in self.spec.after_each:
            with ErrorContext(f"after_each: {each.name}"):
                task = find_task(each.task, trust=bool(each.options.get("trust", False)))
                options_from_python(task.scoring, run=self.record, corpus=each.corpus, **each.options)
                corpus = str(each.corpus)
                if not is_url(corpus) and not Path(corpus).exists() and not any(corpus.startswith(w) for w in written):
                    raise WorkbenchError(f"there is no corpus {corpus}, and no stage writes it; prepare it first")

    def _measure(self, name: str) -> None:
        """The tasks after a stage that are not measured yet."""
        from workbench.evaluation.scoring.evaluation import evaluate
        from workbench.evaluation.scoring.task_finder import find_task

        stage, output = self.finished[name], self.output(name)
        if output is None or not is_run(output):
            return
        for each in self._due(name):
            if each.name not in stage["results"]:
                say(f"stage {name}: evaluate {each.name}")
                with ErrorContext(f"stage {name}, evaluate {each.name}"):
                    task = find_task(each.task, trust=bool(each.options.get("trust", False)))
                    how = options_from_python(task.scoring, run=output, corpus=each.corpus, **each.options)
                    result = evaluate(task, how, show=False)
                number = each.number or next(iter(result))
                if number not in result:
                    raise unknown("number", number, result, f"after_each: {each.name}")
                stage["results"][each.name] = {"number": number, "value": result[number]}
                self._keep(name, stage)

    def _due(self, name: str) -> Iterator[StageTask]:
        order = list(self.words)
        for each in self.spec.after_each:
            first, last = order.index(each.since or order[0]), order.index(each.until or order[-1])
            if name in (order[first : last + 1] if each.stages is None else each.stages):
                yield each

    def table(self) -> Table:
        """The tasks by stages, and how far the last stage is from the first that was measured."""
        stages = [name for name, stage in self.finished.items() if stage["results"]]
        table = Table(title="after each stage")
        for column in ("task", "number", *stages, "last - first"):
            table.add_column(column, justify="left" if column in ("task", "number") else "right")
        for each in self.spec.after_each:
            found = {name: self.finished[name]["results"].get(each.name) for name in stages}
            values = [cell["value"] for cell in found.values() if cell]
            if values:
                cells = [f"{cell['value']:.4g}" if cell else "" for cell in found.values()]
                number = next(cell["number"] for cell in found.values() if cell)
                table.add_row(each.name, number, *cells, f"{values[-1] - values[0]:+.4g}")
        return table
