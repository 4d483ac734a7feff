"""The lines of a table of results: their distinguishing properties, and their baselines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.report.run import Record, Run, listed
from workbench.report.seeds import merged_run, name_of

KINDS = ("control", "options", "variant")
"""The properties that distinguish results of a run on a test set."""
OVERLAP, UNLEARNED = "evaluated on what it was trained on or chosen by", "hardly learned"
Values = dict[str, tuple[Any, ...]]
"""By number its value, or the values of several seeds."""


@dataclass(frozen=True)
class Line:
    """One kind of result of runs that differ only in their seed."""

    group: list[Run]
    results: list[Record]
    more: tuple[str, ...] = ()
    """Properties that distinguish it from other results of its runs with the same control and options."""

    @property
    def numbers(self) -> Values:
        return merged_run([result["numbers"] for result in self.results])

    @property
    def name(self) -> str:
        """The name of the run, or of the group of seeds."""
        return name_of(self.group)

    @property
    def items(self) -> int | None:
        """The number of evaluated items; None if its runs evaluated different numbers of items."""
        found = {
            result.get("items") or next(iter((result.get("counts") or {}).values()), None) for result in self.results
        }
        return found.pop() if len(found) == 1 else None

    @property
    def intervals(self) -> dict[str, Any]:
        """By number its 95 % interval over items; several seeds have none and show their deviation."""
        return (self.results[0].get("intervals") or {}) if len(self.results) == 1 else {}

    @property
    def bounds(self) -> list[str]:
        """The baselines that are upper bounds."""
        return listed(self.results[0], "bounds")

    @property
    def kind(self) -> str:
        return "control" if self.group[0].control or self.results[0].get("control") else "result"

    @property
    def tags(self) -> list[str]:
        """Tags of the result: seeds, control (of training or of evaluation only), options."""
        run, result = self.group[0], self.results[0]
        tags = [f"{len(self.group)} seeds"] if len(self.group) > 1 else []
        if run.control:
            tags.append(f"trained with {run.control}")
        if result.get("control"):
            tags.append(f"evaluated with {result['control']}")
        if any(each.get("seen") for each in self.results):
            tags.append(OVERLAP)
        if any(each.get("unlearned") for each in self.results):
            tags.append(UNLEARNED)
        return [*tags, *(f"{name} {identity(value)}" for name, value in _options(result).items()), *self.more]

    @property
    def baselines(self) -> dict[str, Values]:
        """The baselines by name; a baseline that is the same for all seeds has one value."""
        baselines = [result.get("baselines") or {} for result in self.results]
        found = {
            name: merged_run([_named(of[name], self.results[0]) for of in baselines if name in of])
            for name in baselines[0]
        }
        return {
            name: {metric: values[:1] if len(set(values)) == 1 else values for metric, values in numbers.items()}
            for name, numbers in found.items()
        }


def lines_of(group: list[Run], found: Sequence[tuple[Run, Record]]) -> list[Line]:
    """The lines of a group: a kind of result that each of its runs has once is one line."""
    alike: dict[str, list[tuple[Run, Record]]] = {}
    for run, result in found:
        alike.setdefault(json.dumps([result.get(name) for name in KINDS], sort_keys=True), []).append((run, result))
    lines = []
    for of in alike.values():
        if [run.folder for run, _ in of] == [run.folder for run in group]:
            lines.append(Line(group, [result for _, result in of]))
        else:
            lines += [Line([run], [result]) for run, result in of]
    return lines


def distinguished(lines: Sequence[Line]) -> list[Line]:
    """The lines; lines with equal labels get their variants of the metric, or else the data that only they read."""
    for describe in (_variant, _read):
        alike: dict[tuple[str, ...], list[Line]] = {}
        for line in lines:
            alike.setdefault((line.name, *line.tags), []).append(line)
        lines = [_with_own(line, alike[line.name, *line.tags], describe) for line in lines]
    return list(lines)


def baselines_of(lines: Sequence[Line]) -> list[tuple[str, Values]]:
    """The baselines of a table: a baseline that all lines share occurs once, the others name their lines."""
    shown = []
    for name in dict.fromkeys(name for line in lines for name in line.baselines):
        by_numbers: list[tuple[Values, list[str]]] = []
        for line in lines:
            if (numbers := line.baselines.get(name)) is None:
                continue
            whose = next((names for known, names in by_numbers if known == numbers), None)
            if whose is None:
                by_numbers.append((numbers, whose := []))
            whose.append(" ".join([line.name, *(f"[{tag}]" for tag in line.tags if tag not in (OVERLAP, UNLEARNED))]))
        alone = len(by_numbers) == 1
        for numbers, names in by_numbers:
            shown.append((name if alone else f"{name} ({', '.join(dict.fromkeys(names))})", numbers))
    return shown


def identity(value: Any) -> str:
    """An input in one line: a corpus is its place, its size and the beginning of its checksum."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {identity(each)}" for name, each in value.items())
    if isinstance(value, list | tuple):
        more = f" and {len(value) - 3} more" if len(value) > 3 else ""
        return " ".join(identity(each) for each in value[:3]) + more
    text = str(value)
    hexadecimal = len(text) >= 32 and set(text) <= set("0123456789abcdef")
    return text[:12] + "…" if hexadecimal else text


def _with_own(line: Line, alike: Sequence[Line], describe: Any) -> Line:
    """The line with the properties that not all lines with the same label share."""
    shared = set.intersection(*(set(describe(other)) for other in alike))
    return Line(line.group, line.results, (*line.more, *(each for each in describe(line) if each not in shared)))


def _variant(line: Line) -> Iterable[str]:
    """The components of the variant's name."""
    return dict.fromkeys(filter(None, str(line.results[0].get("variant") or "").split("; ")))


def _read(line: Line) -> Iterable[str]:
    """Kind, place and identity of the data that was opened besides the checkpoint and the corpus."""
    read = (line.results[0].get("inputs") or {}).get("read")
    kinds = read.items() if isinstance(read, Mapping) else ()
    of_kinds = ((kind, of) for kind, of in kinds if isinstance(of, Mapping))
    return dict.fromkeys(f"{kind} {place} {identity(what)}" for kind, of in of_kinds for place, what in of.items())


def _options(result: Record) -> dict[str, Any]:
    return result.get("options") or {}


def _named(numbers: Any, result: Record) -> dict[str, Any]:
    """A baseline's numbers; a single number belongs to the result's first metric."""
    return numbers if isinstance(numbers, dict) else {next(iter(result["numbers"])): numbers}
