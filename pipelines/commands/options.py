"""Options that the preparing commands share, and the values built from them: see
`workbench.core.options.command.command`."""

from __future__ import annotations

import shlex
import sys
import typing
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from pipelines.preparing.chunks import Conversion, Limits
from pipelines.preparing.duplicates import Duplicates
from pipelines.preparing.engines.engine import Engine
from pipelines.preparing.engines.ray_core import chosen_engine
from pipelines.preparing.progress import show
from pipelines.preparing.runner import check, check_next_to, run
from pipelines.preparing.splits import Splits
from pipelines.preparing.uploads import CorpusUpload, folder_of
from pipelines.preparing.workspace import CorpusFacts
from pipelines.readers.formats import Inputs, find_format, formats, reader_of, sorted_inputs
from pipelines.readers.reader import RawReader
from pipelines.sources.files import expand, passed_over, plain_suffix
from pipelines.sources.remote_files import local_inputs
from pipelines.stages import Stage
from workbench.components.error_context import ErrorContext
from workbench.components.kinds import import_paths
from workbench.components.trust import allow
from workbench.core.errors import WorkbenchError, shown
from workbench.core.files.drafts import write_text
from workbench.core.files.stores import Store, uploaded
from workbench.core.files.urls import LOCAL_ONLY, local_path, url_of
from workbench.core.files.yaml_values import parse_value
from workbench.core.local_copies import with_urls
from workbench.core.options.bounds import (
    Assignment,
    Count,
    Name,
    OutputPlace,
    PartOf,
    Place,
    Processes,
    Title,
)
from workbench.core.options.command import Address, EngineName
from workbench.core.options.values import is_text


class OnError(StrEnum):
    """What happens to a record that does not fit its format."""

    stop = "stop"
    skip = "skip"


ShardSize = Annotated[Count, typer.Option(help="Most records per shard.")]
Output = Annotated[
    OutputPlace, typer.Option("--output", "-o", help="Folder or URL of the new corpus.", show_default=False)
]
Limit = Annotated[
    Count | None, typer.Option(help="Read only this many first records of the input.", show_default=False)
]
SplitShares = Annotated[
    list[Assignment],
    typer.Option(help="NAME=SHARE: held-out documents go to OUTPUT-NAME, for example held-out=0.05. Repeatable."),
]
Workers = Annotated[Processes, typer.Option(help="Processes; 0 = one per core (of the Ray cluster, or per GPU).")]


@dataclass(frozen=True, kw_only=True)
class WritingOptions:
    """The output folder, the size of shards, the engine and the number of processes."""

    output: Output
    workers: Workers = 0
    engine: EngineName = "local"
    address: Address = None
    shard_size: ShardSize = 5_000
    shard_bytes: Annotated[Count, typer.Option(help="Approximate bytes of raw input per shard.")] = 128 << 20
    limit: Limit = None
    log_dropped: Annotated[
        bool, typer.Option("--log-dropped", help="Write each dropped record and its reason to OUTPUT/dropped/*.jsonl.")
    ] = False
    part: Annotated[
        PartOf | None,
        typer.Option(help="i/n: do only the i-th of n parts of the work, for n machines; see prepare join."),
    ] = None

    def __post_init__(self) -> None:
        self.chosen_engine()  # refuses what it lacks before any work

    def chosen_engine(self) -> Engine:
        """
        Raises:
            WorkbenchError: as `chosen_engine`.
        """
        return chosen_engine(self.engine, self.workers, self.address)

    def prepare(
        self,
        conversion: Conversion,
        inputs: Sequence[Path],
        kind: str,
        *,
        splits: Splits | None = None,
        duplicates: Duplicates | None = None,
        numbered_keys: bool = False,
        log_drops: bool = False,
        about: Mapping[str, Any] | None = None,
        passed_over: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """Prepare the corpus with a progress bar, and print the counts of kept and dropped records."""
        parts, upload = (splits or Splits()).parts, CorpusUpload.to(self.output)
        if upload is not None and self.part is not None:
            raise WorkbenchError(f"--output {self.output}: with --part it is {LOCAL_ONLY}, for `prepare join`")
        with nullcontext() if upload is None else upload.held(parts):
            plan = check(
                conversion,
                inputs,
                folder_of(self.output),
                kind,
                splits=splits,
                duplicates=duplicates,
                limits=Limits(self.shard_size, self.shard_bytes, self.limit, self.part),
                engine=self.chosen_engine(),
                numbered_keys=numbered_keys,
                log_drops=log_drops or self.log_dropped,
                facts=CorpusFacts(command_line(), about or {}, passed_over=passed_over or {}),
                upload=upload,
            )
            show(run(plan))

    def place_of(self, part: str = "") -> str:
        """The path or URL of the corpus, or of a split."""
        place = url_of(self.output) or str(local_path(self.output))
        return f"{place.rstrip('/')}-{part}" if part else place.rstrip("/")

    def file_next_to(self, name: str) -> AbstractContextManager[Path]:
        """A block that writes a file next to the corpus; of a URL a local one, which is uploaded."""
        place = f"{self.place_of()}/{name}"
        return uploaded(place) if url_of(place) is not None else nullcontext(Path(place))

    def add_file(self, name: str, text: str) -> None:
        """Write a text next to the corpus."""
        if (url := url_of(self.output)) is not None:
            Store(url).put_bytes(text.encode("utf-8"), name)
        else:
            write_text(local_path(self.output) / name, text)


@dataclass(frozen=True, kw_only=True)
class ReadingOptions(WritingOptions):
    """The raw files, their format, and the provenance of every record."""

    inputs: Annotated[list[Place], typer.Argument(help="Files, folders, glob patterns or URLs.", show_default=False)]
    format: Annotated[
        Name | None,
        typer.Option(
            help="Raw format, or module:Class of your own; default: detected from the input.", show_default=False
        ),
    ] = None
    trust: Annotated[
        bool, typer.Option("--trust", help="Allow the code of a format of your own (in this folder) to run.")
    ] = False
    option: Annotated[
        list[Assignment], typer.Option(help="NAME=VALUE: an option of the format. Repeatable.", show_default=False)
    ] = field(default_factory=list)
    split: SplitShares = field(default_factory=list)
    own_split: Annotated[
        list[Name],
        typer.Option(help="Records whose meta.split is NAME go to OUTPUT-NAME. Repeatable."),
    ] = field(default_factory=list)
    licence: Annotated[Title | None, typer.Option(help="Licence, stored with every record.", show_default=False)] = None
    url: Annotated[
        Title | None, typer.Option(help="Source of the data, stored with every record.", show_default=False)
    ] = None
    on_error: Annotated[
        OnError, typer.Option(help="Records that do not fit the format: stop, or skip and count them.")
    ] = OnError.stop

    def read(self, kind: str, stages: Sequence[Stage] = (), *, log_drops: bool = False, **lists: Sequence[str]) -> None:
        """Turn the inputs into a corpus of the kind; `lists` are the format's options that have their own flags.

        With `log_drops` each dropped record is listed in the corpus's folder.

        Raises:
            WorkbenchError: unknown format or option, or a value of the wrong type.
        """
        allow(import_paths([self.format]), Path.cwd(), "--format", trust=self.trust)
        paths = expand(local_inputs(self.inputs))
        check_next_to(folder_of(self.output), paths)
        reader, read = chosen_reader(kind, self.format, paths, self.option, **lists)
        with ErrorContext(reader):
            left = passed_over(paths, reader.inputs(read), reader.may_name)
        meta = {name: value for name, value in (("licence", self.licence), ("url", with_urls(self.url))) if value}
        conversion = Conversion(reader, tuple(stages), meta, "skip" if self.on_error is OnError.skip else "stop")
        self.prepare(
            conversion,
            read,
            reader.kind,
            splits=self.splits(),
            duplicates=Duplicates(exact=self.drops_duplicates()),
            numbered_keys=self.numbers_keys(),
            log_drops=log_drops,
            about=self.about(reader),
            passed_over=left,
        )

    def splits(self) -> Splits:
        """The held-out splits."""
        return Splits.parse(self.split, self.own_split)

    def about(self, reader: RawReader) -> Mapping[str, Any]:
        """Facts on the whole corpus."""
        return reader.about()

    def drops_duplicates(self) -> bool:
        """Whether exact duplicates are dropped."""
        return False

    def numbers_keys(self) -> bool:
        """Whether records are numbered instead of keeping their keys."""
        return False


@dataclass(frozen=True, kw_only=True)
class CleaningOptions(ReadingOptions):
    """Options on duplicate records and keys."""

    dedupe: Annotated[bool, typer.Option("--dedupe", help="Leave out exact duplicates (reads the input twice).")] = (
        False
    )
    numbered_keys: Annotated[
        bool, typer.Option("--numbered-keys", help="Number the records instead of using their ids.")
    ] = False

    def drops_duplicates(self) -> bool:
        return self.dedupe

    def numbers_keys(self) -> bool:
        return self.numbered_keys


def chosen_reader(
    kind: str, name: str | None, paths: Sequence[Path], options: Sequence[str], **lists: Sequence[str]
) -> tuple[RawReader, list[Path]]:
    """The reader with its `NAME=VALUE` options, and its inputs; the files of a folder by their names.

    Of inputs of several formats, each format takes the options that it has.

    Args:
        lists: the format's options that have their own flags.

    Raises:
        WorkbenchError: unknown format or option, or a value of the wrong type.
    """
    groups = {name: list(paths)} if name else _detected(kind, paths, [each.partition("=")[0] for each in options])
    hints = {each: typing.get_type_hints(find_format(kind, each), include_extras=True) for each in groups}
    values: dict[str, dict[str, Any]] = {each: {} for each in groups}
    for called, given in lists.items():
        for each in _having(called, hints) if given else ():
            values[each][called] = list(given)
    for option in options:
        called, equals, text = option.partition("=")
        if not equals:
            raise WorkbenchError(f"--option {option!r} is not NAME=VALUE")
        for each in _having(called, hints):
            values[each][called] = text if is_text(hints[each].get(called)) else _value(text, option)
    try:
        return reader_of(kind, groups, values), [path for read in groups.values() for path in read]
    except WorkbenchError as error:
        if name is None and (options or any(lists.values())):
            named = ", ".join(groups)
            error.add_note(f"Detected: {named}. --format chooses another; 'workbench formats' lists them")
        raise


def _detected(kind: str, paths: Sequence[Path], options: Sequence[str]) -> Inputs:
    """The format of each input; where none is certain, the only one of such files that has all of these options, such
    as the names of columns."""
    try:
        return sorted_inputs(kind, paths)
    except WorkbenchError:
        ends = {plain_suffix(path) for path in paths}
        having = {name: {each.name for each in fields(reader)} for name, reader in formats(kind).items()}
        found = [
            name for name, own in having.items() if own.issuperset(options) and ends <= {*formats(kind)[name].suffixes}
        ]
        if not options or len(found) != 1:
            raise
        return {found[0]: list(paths)}


def _having(option: str, hints: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The formats that have an option of this name; where none has it, all of them, so that the message names it."""
    return [name for name, own in hints.items() if option in own] or list(hints)


def _value(text: str, option: str) -> Any:
    try:
        return parse_value(text)
    except WorkbenchError as error:
        raise WorkbenchError(f"--option {shown(option)}: {error}") from error


HOW = ("--engine", "--address", "--workers")
"""Options that decide where a corpus is computed, and nothing in it."""


def command_line() -> str:
    """The command for the corpus's provenance: as the user typed it, without the options of `HOW`. So the corpus.json
    of a corpus does not depend on them."""
    program = Path(sys.argv[0])
    name = program.parent.name if program.name == "__main__.py" else program.name  # of `python -m workbench`
    kept: list[str] = []
    arguments = iter(sys.argv[1:])
    for argument in arguments:
        if argument in HOW:
            next(arguments, None)
        elif argument.partition("=")[0] not in HOW:
            kept.append(argument)
    return shlex.join(with_urls([name, *kept]))
