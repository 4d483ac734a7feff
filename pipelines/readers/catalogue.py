"""The raw formats in words, as the readers say them: for `workbench formats`, `prepare --help`, docs/formats.md."""

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
from workbench.errors import unknown
from workbench.options.values import described, without_null
from workbench.parts.listing import Option, options_table, table_cell, written

KINDS = ("text", "image-text", "video-text", "speech-text", "triples")


FLAGS = ("images", "videos", "sounds", "entities", "relations", "types", "type_names", "fetch")
"""Options that the commands have flags of their own for."""


@dataclass(frozen=True)
class Listed:
    """A format: what it reads (the first paragraph of its file), the suffixes, its options and what is said of them."""

    kind: str
    name: str
    line: str
    suffixes: tuple[str, ...]
    options: list[Option]
    text: str


def listed(kind: str | None = None) -> list[Listed]:
    """The formats of a kind, or all.

    Raises:
        WorkbenchError: there is no such kind.
    """
    if kind is not None and kind not in KINDS:
        raise unknown("kind of raw data", kind, KINDS)
    kinds = KINDS if kind is None else (kind,)
    return [_listed(each, name, reader) for each in kinds for name, reader in sorted(formats(each).items())]


def _listed(kind: str, name: str, reader: type[RawReader]) -> Listed:
    line = inspect.cleandoc(sys.modules[reader.__module__].__doc__ or "").partition("\n\n")[0].replace("\n", " ")
    return Listed(kind, name, line, reader.suffixes, list(_options(reader)), inspect.getdoc(reader) or "")


def _options(reader: type[RawReader]) -> Iterator[Option]:
    hints = typing.get_type_hints(reader, include_extras=True)
    for field in fields(reader):
        default = field.default if field.default_factory is MISSING else field.default_factory()
        empty = default is None or default in ([], {})
        allowed = described(without_null(hints[field.name]))
        yield Option(field.name, allowed, "" if empty else written(default))


def table(kind: str | None, *, options: bool) -> Table:
    """For the terminal; with `options` those of each format, with what may be said and the defaults."""
    shown = Table(box=None, pad_edge=False, show_header=False)
    for one in listed(kind):
        suffixes = f" ({' '.join(one.suffixes)})" if one.suffixes else ""
        told = [f"{escape(one.line)}{escape(suffixes)}"]
        for option in one.options if options else ():
            if option.name not in FLAGS:
                default = f" [{option.default}]" if option.default else ""
                told.append(f"  [bold]{escape(option.name)}[/]: {escape(option.allowed + default)}")
        shown.add_row(*([] if kind else [one.kind]), f"[bold]{escape(one.name)}[/]", "\n".join(told))
    return shown


def markdown() -> Iterator[str]:
    """The lines of docs/formats.md."""
    yield from (
        "# Raw formats",
        "",
        "What `workbench prepare KIND` reads, as `workbench formats --markdown` writes it from the readers themselves.",
        "The format of a file is found by its content and its suffix, or said with `--format`. Each file of a folder",
        "is read by its own format. Files of none are named at the end, and in corpus.json (`passed_over`). Options",
        "are set by `--option NAME=VALUE`. Files may be compressed (.gz, .bz2, .xz, .zst), except Parquet and Arrow.",
        "How to add a format is told in [CONTRIBUTING.md](../CONTRIBUTING.md#a-raw-format).",
    )
    for kind in KINDS:
        yield from ("", f"## prepare {kind}", "", "| format | reads | suffixes |", "|---|---|---|")
        own = listed(kind)
        yield from (f"| [`{o.name}`](#{_anchor(o)}) | {table_cell(o.line)} | {' '.join(o.suffixes)} |" for o in own)
        for one in own:
            yield from ("", f"### {one.kind}: {one.name}", "", *one.text.splitlines())
            yield from options_table(one.options)


def _anchor(one: Listed) -> str:
    return f"{one.kind}-{one.name}"
