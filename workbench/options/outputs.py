"""Where a command writes: what is refused of an `--output` before any work is done."""

from __future__ import annotations

import os
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from workbench.errors import WorkbenchError
from workbench.files.drafts import check_writable


@dataclass(frozen=True)
class Written:
    """Marks the option of a file that the command writes when its work is done."""


OutputFile = Annotated[Path, Written()]
"""A file to write: nothing stands at its place, or a file that is none of the command's inputs."""


def check_outputs(hints: Mapping[str, Any], values: Mapping[str, Any], where: Mapping[str, str]) -> None:
    """Check the files that a command is to write.

    Args:
        hints: the annotations of its options.
        values: what it was given.
        where: the options as the user types them.

    Raises:
        MachineError: the disk is full.
        WorkbenchError: a file cannot be written, would replace what is no file, or is an input too; by the option's
            name.
    """
    outputs = [name for name, hint in hints.items() if is_written(hint) and values.get(name) is not None]
    for name in outputs:
        try:
            check_writable(values[name])
        except WorkbenchError as error:
            raise type(error)(f"{where[name]}: {error}") from error
        for other, value in values.items():
            if other not in outputs and any(_same(values[name], place) for place in _paths(value)):
                raise WorkbenchError(
                    f"{where[name]}: {values[name]} is what {where[other]} reads, and would be lost; choose another "
                    "place"
                )


def is_written(hint: Any) -> bool:
    """Whether the mark stands on an annotation, or on a member of a union in it."""
    return isinstance(hint, Written) or any(map(is_written, typing.get_args(hint)))


def _paths(value: Any) -> Iterator[str | Path]:
    for each in value if isinstance(value, list) else [value]:
        if isinstance(each, str | Path):
            yield each


def _same(output: Path, place: str | Path) -> bool:
    """Whether both are one file; a text that names none is no file."""
    try:
        return os.path.samefile(output, place)
    except (OSError, ValueError):
        return False
