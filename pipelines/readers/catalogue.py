"""Descriptions of the raw formats, from their readers: for `workbench formats`, `prepare --help` and docs/formats/."""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields

from rich.markup import escape
from rich.table import Table

from pipelines.readers.formats import formats
from pipelines.readers.reader import RawReader
from pipelines.readers.regions.region_files import region_formats
from workbench.components.component_listing import ComponentOption, written
from workbench.core.errors import unknown
from workbench.core.options.values import described, without_null

KINDS = ("text", "image-text", "video-text", "speech-text", "triples")


FLAGS = ("images", "videos", "sounds", "entities", "relations", "types", "type_names", "fetch")
"""Options that have their own flags on the commands."""


@dataclass(frozen=True)
class FormatEntry:
    """A format: its description (the first paragraph of its file), its suffixes, its options and their descriptions."""

    kind: str
    name: str
    line: str
    suffixes: tuple[str, ...]
    options: list[ComponentOption]
    text: str


def format_entries(kind: str | None = None) -> list[FormatEntry]:
    """The formats of a kind, or all.

    Raises:
        WorkbenchError: there is no such kind.
    """
    if kind is not None and kind not in KINDS:
        raise unknown("kind of raw data", kind, KINDS)
    kinds = KINDS if kind is None else (kind,)
    return [_format_entry(each, name, reader) for each in kinds for name, reader in sorted(formats(each).items())]


def region_listed() -> list[FormatEntry]:
    """The formats of precomputed region features, which have no options."""
    found = sorted(region_formats().items())
    return [FormatEntry("regions", name, _line(reader), (), [], inspect.getdoc(reader) or "") for name, reader in found]


def _format_entry(kind: str, name: str, reader: type[RawReader]) -> FormatEntry:
    return FormatEntry(kind, name, _line(reader), reader.suffixes, list(_options(reader)), inspect.getdoc(reader) or "")


def _line(reader: type) -> str:
    return inspect.cleandoc(sys.modules[reader.__module__].__doc__ or "").partition("\n\n")[0].replace("\n", " ")


def _options(reader: type[RawReader]) -> Iterator[ComponentOption]:
    hints = typing.get_type_hints(reader, include_extras=True)
    for field in fields(reader):
        default = field.default if field.default_factory is MISSING else field.default_factory()
        empty = default is None or default in ([], {})
        allowed = described(without_null(hints[field.name]))
        yield ComponentOption(field.name, allowed, "" if empty else written(default))


def table(kind: str | None, *, options: bool) -> Table:
    """The description for the terminal; with `options` also each option with allowed and default values."""
    shown = Table(box=None, pad_edge=False, show_header=False)
    for one in format_entries(kind):
        suffixes = f" ({' '.join(one.suffixes)})" if one.suffixes else ""
        parts = [f"{escape(one.line)}{escape(suffixes)}"]
        for option in one.options if options else ():
            if option.name not in FLAGS:
                default = f" [{option.default}]" if option.default else ""
                parts.append(f"  [bold]{escape(option.name)}[/]: {escape(option.allowed + default)}")
        shown.add_row(*([] if kind else [one.kind]), f"[bold]{escape(one.name)}[/]", "\n".join(parts))
    return shown
