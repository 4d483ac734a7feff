"""Whole JSON files: an object with lists of rows, as COCO and VQA publish their annotations, or one list.

A list is read element by element: it may be larger than the memory.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipelines.sources.files import LINE_LIMIT, READ_SIZE, open_text_bytes, undamaged
from workbench.core.errors import WorkbenchError
from workbench.core.files.text_files import parse_json


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        WorkbenchError: not JSON (with line and column), not UTF-8, or not an object.
    """
    with open_text_bytes(path) as handle:
        raw = handle.read()
    try:
        tree = parse_json(raw)
    except UnicodeDecodeError as error:
        raise WorkbenchError(f"{path}: not valid UTF-8 ({error.reason} at byte {error.start})") from error
    except json.JSONDecodeError as error:
        raise WorkbenchError(
            f"{path}: not JSON ({error.msg} at line {error.lineno}, column {error.colno}); is it cut off?"
        ) from error
    if not isinstance(tree, dict):
        raise WorkbenchError(f"{path}: expected a JSON object, found {type(tree).__name__}")
    return tree


def rows_of(tree: dict[str, Any], name: str, path: Path) -> list[Any]:
    """The list under a key, whose elements should be objects (`pipelines.readers.reader.as_object`).

    Raises:
        WorkbenchError: the key is missing or has another type; names the keys.
    """
    rows = tree.get(name)
    if not isinstance(rows, list):
        raise WorkbenchError(f"{path}: no list of objects under {name!r}; the file has {', '.join(tree) or 'nothing'}")
    return rows


def is_list(path: Path) -> bool:
    """Whether the first character that is not white space opens a list."""
    with open_text_bytes(path) as handle, undamaged(path):
        return handle.read(1 << 10).lstrip()[:1] == b"["


def elements(path: Path) -> Iterator[str]:
    """The text of each element of the list.

    Raises:
        WorkbenchError: not UTF-8, not JSON, damaged, cut off, or an element longer than `LINE_LIMIT` characters.
    """
    with open_text_bytes(path) as handle, undamaged(path):
        yield from _Elements(io.TextIOWrapper(handle, "utf-8"), path)


class _Elements:
    """The text that was read and not yet returned is in `text`, from `at` on."""

    def __init__(self, handle: io.TextIOWrapper, path: Path) -> None:
        self.handle, self.path = handle, path
        self.text, self.at, self.number = "", 0, 0

    def __iter__(self) -> Iterator[str]:
        decoder = json.JSONDecoder()
        self._take("[")
        if self._next() == "]":
            return
        while True:
            yield self._element(decoder)
            if self._take(",]") == "]":
                return

    def _element(self, decoder: json.JSONDecoder) -> str:
        self.number += 1
        self._next()
        while True:
            try:
                _, end = decoder.raw_decode(self.text, self.at)
            except (ValueError, RecursionError) as error:
                if len(self.text) - self.at > LINE_LIMIT or not self._read():
                    raise self._broken(str(error)) from error
                continue
            found, self.at = self.text[self.at : end], end
            return found

    def _take(self, allowed: str) -> str:
        """The next character that is not white space, one of those allowed."""
        found = self._next()
        if not found or found not in allowed:
            raise self._broken(f"{' or '.join(allowed)} expected, found {found!r}" if found else "the file ends here")
        self.at += 1
        return found

    def _next(self) -> str:
        """The next character that is not white space, without consuming it; empty at the end."""
        while True:
            rest = self.text[self.at : self.at + 1]
            if rest and not rest.isspace():
                return rest
            self.at += len(rest)
            if not rest and not self._read():
                return ""

    def _read(self) -> bool:
        """Read more, twice as much for a long element; whether there was more."""
        try:
            more = self.handle.read(max(READ_SIZE, len(self.text) - self.at))
        except UnicodeDecodeError as error:
            raise WorkbenchError(f"{self.path}: not valid UTF-8 ({error.reason})") from error
        self.text, self.at = self.text[self.at :] + more, 0
        return bool(more)

    def _broken(self, why: str) -> WorkbenchError:
        return WorkbenchError(f"{self.path}: the JSON list is broken at element {self.number}: {why}. Is it cut off?")
