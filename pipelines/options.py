"""Options that the preparing commands share, and what they make of them."""

from __future__ import annotations

import shlex
import sys
import typing
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from pipelines.chunks import Job
from pipelines.readers import detect, formats, make_reader
from pipelines.readers.reader import Reader
from pipelines.runner import Limits
from pipelines.splits import parse_splits
from pipelines.stages import Stage
from workbench.errors import WorkbenchError, unknown


class OnError(StrEnum):
    """What a record that does not fit its format does."""

    stop = "stop"
    skip = "skip"


Inputs = Annotated[list[str], typer.Argument(help="Files, folders or glob patterns.", show_default=False)]
Output = Annotated[Path, typer.Option("--output", "-o", help="Folder of the new corpus.", show_default=False)]
Split = Annotated[
    list[str],
    typer.Option(help="NAME=SHARE: held-out documents go to OUTPUT-NAME, for example held-out=0.05. Repeatable."),
]
Workers = Annotated[int, typer.Option(help="Processes; 0 = one per core.")]
ShardSize = Annotated[int, typer.Option(help="Records per shard, at most.")]
ShardBytes = Annotated[int, typer.Option(help="Bytes of raw input per shard, about.")]
Limit = Annotated[int | None, typer.Option(help="Only the first records of the input.", show_default=False)]
Format = Annotated[str | None, typer.Option(help="Raw format; by default told from the input.", show_default=False)]
FormatOptions = Annotated[
    list[str], typer.Option("--option", help="NAME=VALUE: an option of the format. Repeatable.", show_default=False)
]
Licence = Annotated[str | None, typer.Option(help="Licence, noted with every record.", show_default=False)]
Url = Annotated[str | None, typer.Option(help="Where the data is from, noted with every record.", show_default=False)]
SkipErrors = Annotated[OnError, typer.Option(help="Records that do not fit the format: stop, or skip and count them.")]
NumberedKeys = Annotated[bool, typer.Option("--numbered-keys", help="Number the records instead of using their ids.")]
Dedupe = Annotated[bool, typer.Option("--dedupe", help="Leave out exact duplicates (reads the input twice).")]


def limits(workers: int, shard_size: int, shard_bytes: int, limit: int | None) -> Limits:
    """Limits from the command line, where 0 workers means one per core."""
    cut: dict[str, Any] = {"shard_size": shard_size, "shard_bytes": shard_bytes, "limit": limit}
    return Limits(**cut) if workers == 0 else Limits(workers=workers, **cut)


def chosen_reader(
    kind: str, name: str | None, paths: Sequence[Path], options: Sequence[str], **lists: Sequence[str]
) -> Reader:
    """The reader with its `NAME=VALUE` options; `lists` are options that the command has flags of its own for.

    Raises:
        WorkbenchError: unknown format or option, or a value of the wrong type.
    """
    name = name or detect(kind, paths)
    if name not in formats(kind):
        raise unknown(f"{kind} format", name, formats(kind))
    hints = typing.get_type_hints(formats(kind)[name])
    values: dict[str, Any] = {field: list(value) for field, value in lists.items() if value}
    for option in options:
        field, equals, value = option.partition("=")
        if not equals:
            raise WorkbenchError(f"--option {option!r} is not NAME=VALUE")
        values[field] = value if hints.get(field) is str else _value(value, option)
    return make_reader(kind, name, paths, values)


def _value(text: str, option: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise WorkbenchError(f"--option {option!r}: cannot read the value: {' '.join(str(error).split())}") from error


def job_of(
    reader: Reader,
    output: Path,
    stages: Sequence[Stage],
    *,
    split: Sequence[str],
    licence: str | None,
    url: str | None,
    on_error: OnError = OnError.stop,
    dedupe: bool = False,
    numbered_keys: bool = False,
) -> Job:
    """The job that the command's options describe."""
    meta = {name: value for name, value in (("licence", licence), ("url", url)) if value}
    return Job(
        reader,
        reader.kind,
        output,
        tuple(stages),
        parse_splits(split),
        meta,
        dedupe=dedupe,
        numbered_keys=numbered_keys,
        on_error="skip" if on_error is OnError.skip else "stop",
    )


def command_line() -> str:
    """The command as the user typed it, for the corpus's provenance."""
    return shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
