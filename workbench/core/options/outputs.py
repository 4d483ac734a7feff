"""Checks of the output files of a command, before any work is done.

Can it be written? Would it replace a file and nothing else (no device, pipe, link or folder)? Is it also an input, or
another output? Does a run or a corpus own it (`workbench.runs.output_places`)? `workbench.core.files.drafts` checks the
first two again when a file is written.
"""

from __future__ import annotations

import os
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.core.errors import WorkbenchError
from workbench.core.files.drafts import check_writable, real_path


@dataclass(frozen=True)
class OutputMark:
    """The mark of an option that names a file which the command writes: `workbench.runs.output_places.OutputFile`.

    Attributes:
        check: raises a WorkbenchError for a place that belongs to something else.
    """

    check: Callable[[Path], None]


def check_outputs(hints: Mapping[str, Any], values: Mapping[str, Any], where: Mapping[str, str]) -> None:
    """Check the output files of a command.

    Args:
        hints: the annotations of its options.
        values: the values of its options.
        where: the options as typed.

    Raises:
        MachineError: the disk is full.
        WorkbenchError: a file cannot be written, would replace something that is no file or belongs to a run or a
            corpus, or is also an input or another output; the message names the option.
    """
    marks = {name: written(hint) for name, hint in hints.items() if values.get(name) is not None}
    outputs = {name: mark for name, mark in marks.items() if mark}
    places: dict[Path, str] = {}
    for name, mark in outputs.items():
        try:
            check_writable(values[name])
            mark.check(values[name])
        except WorkbenchError as error:
            raise type(error)(f"{where[name]}: {error}") from error
        before = places.setdefault(real_path(values[name]), name)
        if before != name:
            raise WorkbenchError(
                f"{where[name]}: {values[name]} is also the output of {where[before]} and would be overwritten; choose "
                "another place"
            )
        for other, value in values.items():
            if other not in outputs and any(_same(values[name], place) for place in _paths(value)):
                raise WorkbenchError(
                    f"{where[name]}: {values[name]} is also the input {where[other]} and would be overwritten; choose "
                    "another "
                    "place"
                )


def written(hint: Any) -> OutputMark | None:
    """The mark on an annotation, or on a member of a union in it."""
    if isinstance(hint, OutputMark):
        return hint
    return next(filter(None, map(written, typing.get_args(hint))), None)


def _paths(value: Any) -> Iterator[str | Path]:
    for each in value if isinstance(value, list) else [value]:
        if isinstance(each, str | Path):
            yield each


def _same(output: Path, place: str | Path) -> bool:
    """Whether both are the same file; a text that names no file is none."""
    try:
        return os.path.samefile(output, place)
    except (OSError, ValueError):
        return False
